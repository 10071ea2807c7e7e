"""Decides from the bytes of an image file which JPEG is stored.

In: the bytes of a file, whatever its name, and a `Policy`. Out: `Prepared`, a JPEG for
TensorFlow's decode_and_crop_jpeg, with its height and width, or `Rejected` with the
reason. A sound JPEG of one or three components is stored byte for byte; only its header
is read. Pixels are decoded only if the policy or the content requires their change.
Only then Pillow and numpy are imported, because the import takes longer than storing a
thousand images.
"""

from typing import TYPE_CHECKING, NamedTuple

from converters.images import jpeg_header, limits, lossless, shrink, soundness
from converters.images.policy import REENCODE_QUALITY, Policy
from tfpipe.pictures import formats, orientation

if TYPE_CHECKING:
    from converters.images import pillow

# The policies of the reasons with another name than their policy.
_POLICY_OF_REASON = {
    "zero_byte": "not_an_image",
    "ycck": "cmyk",
    "no_decoder": "other_format",
}
_SHRUNK, _CORRUPT = "shrunk", "kept_corrupt"


class Prepared(NamedTuple):
    """The stored JPEG of an image, and how the JPEG was made.

    Attributes:
        encoded: A JPEG.
        height: Height of the decoded JPEG in pixels.
        width: Width in pixels.
        decision: The changes, joined by "+". The bytes of the source are stored
            after "kept" and "kept_grayscale", "kept_progressive", "kept_exif" (the
            pixels are not upright and stay so) and "kept_corrupt". Other decisions are
            "completed_truncated", "converted_<source>", "rotated_exif" (decoded, turned
            and encoded again), "rotated_exif_lossless" (turned by its coefficients) and
            "shrunk"; "kept_exif" is added to them if the result is not upright, and
            "kept_corrupt" if the source was damaged. With
            `Policy.restart_rows`, "rewritten" replaces "kept" or is added, and
            "left_<reason>" is added if the JPEG could not be rewritten.
        psnr: Peak signal-to-noise ratio of the JPEG in decibels, against the pixels
            before encoding; None unless the image was shrunk and is in the sample.
        grayscale: Whether the JPEG has a single component.
        num_bytes_saved: Bytes saved by rewriting; negative if the JPEG grew, None if
            the JPEG was not rewritten.
    """

    encoded: bytes
    height: int
    width: int
    decision: str
    psnr: float | None
    grayscale: bool
    num_bytes_saved: int | None = None


class Rejected(NamedTuple):
    """The reason why nothing is stored for an image.

    Attributes:
        reason: "zero_byte", "not_an_image", "truncated", "undecodable", "corrupt",
            "too_many_pixels", "too_many_bytes", "too_expensive", "no_decoder" (the
            installed Pillow cannot read the format), or a kind skipped by the policy:
            "other_format", "cmyk", "ycck", "grayscale".
        detail: An explanation on a single line.
    """

    reason: str
    detail: str


def is_changed(decision: str) -> bool:
    """Whether the stored bytes differ from the source."""
    return not decision.startswith("kept")


def prepare(data: bytes, policy: Policy) -> Prepared | Rejected:
    """Decides which JPEG to store for a file.

    Args:
        data: Content of the file; any bytes.
        policy: The choices for the kinds of images.

    Raises:
        ValueError: If the image has a fault whose policy is "fail".
        MemoryError: If its pixels do not fit into memory.
    """
    try:
        is_jpeg = data.startswith(jpeg_header.MAGIC)
        prepared = (_prepare_jpeg if is_jpeg else _prepare_other)(data, policy)
        return _with_restarts(prepared) if policy.restart_rows else prepared
    except jpeg_header.BadImageError as error:
        return _rejected(error, policy)


def check_bytes(num_bytes: int, policy: Policy) -> Rejected | None:
    """Checks the size of a file before the file is read.

    Returns:
        The reason not to read the file, or None.

    Raises:
        ValueError: If the file is too large and `too_many_bytes` is "fail".
    """
    try:
        limits.check_bytes(num_bytes, policy)
    except jpeg_header.BadImageError as error:
        return _rejected(error, policy)
    return None


def _rejected(error: jpeg_header.BadImageError, policy: Policy) -> Rejected:
    """Returns the reason of the error; a ValueError if its policy is "fail"."""
    name = _POLICY_OF_REASON.get(error.reason, error.reason)
    if getattr(policy, name) == "fail":
        raise ValueError(error.detail) from error
    return Rejected(error.reason, error.detail)


def _with_restarts(prepared: Prepared) -> Prepared:
    """Adds a restart marker after every row of blocks; the pixels stay the same."""
    decision = prepared.decision
    encoded, left = lossless.rewrite(prepared.encoded)
    if left:
        return prepared._replace(decision=f"{decision}+left_{left}")
    if is_changed(decision):
        decision += "+rewritten"
    else:
        decision = decision.replace("kept", "rewritten")
    return prepared._replace(
        encoded=encoded,
        decision=decision,
        num_bytes_saved=len(prepared.encoded) - len(encoded),
    )


def _prepare_jpeg(data: bytes, policy: Policy) -> Prepared:
    header = jpeg_header.read_header(data)
    limits.check_pixels(header.height, header.width, policy)
    actions = _actions(header, policy)
    size = policy.fit(header.height, header.width)
    encodes = bool(actions) or size is not None or policy.squeezes
    if encodes or header.multi_scan:
        looks = policy.decode == "full" or not header.whole
        limits.check_jpeg(data, header, policy, looks=looks, encodes=encodes, size=size)
    whole, fault = _checked(data, header, policy)
    kept = Prepared(
        whole,
        header.height,
        header.width,
        "+".join([fault] if whole is not data else _notes(header, fault)),
        None,
        header.num_components == 1,
    )
    if not encodes:
        return kept
    done = actions if whole is data else [fault, *actions]
    if size is None and (turned := _turned_without_loss(kept, header, done, policy)):
        return turned
    from converters.images import pillow

    picture = pillow.decode_jpeg(whole, header, size)
    if policy.exif_orientation == "apply":
        picture = pillow.upright(picture)
    changed = _encode(data, picture, done, policy, resized=size is not None)
    if fault == _CORRUPT:
        changed = changed._replace(decision=f"{changed.decision}+{fault}")
    if actions or size is not None or len(changed.encoded) < len(whole):
        return changed
    return kept


def _turned_without_loss(
    kept: Prepared, header: jpeg_header.Header, done: list[str], policy: Policy
) -> Prepared | None:
    """Turns a JPEG by its coefficients; returns None if only encoding can turn it."""
    # The results of `turn` are whole and sequential.
    free = {"rotated_exif", "completed_truncated", "converted_progressive"}
    turns = policy.lossless_rotation and "rotated_exif" in done
    if not turns or policy.squeezes or not free.issuperset(done):
        return None
    encoded, left = lossless.turn(kept.encoded, header.orientation)
    if left:
        return None
    sides = kept.height, kept.width
    if header.orientation in orientation.SIDEWAYS:
        sides = kept.width, kept.height
    decision = "+".join(done).replace("rotated_exif", "rotated_exif_lossless")
    return kept._replace(
        encoded=encoded, height=sides[0], width=sides[1], decision=decision
    )


def _checked(
    data: bytes, header: jpeg_header.Header, policy: Policy
) -> tuple[bytes, str]:
    """Returns the JPEG, and the decision about a fault that the policy keeps.

    Returns:
        The bytes, with an end marker added if there was none; and "kept_corrupt" or
        "completed_truncated", or an empty text for a JPEG without a fault.

    Raises:
        BadImageError: If the JPEG is cut short or damaged and the policy does not keep
            such files, or if the policy asks for a full decode and the decode fails.
    """
    full = policy.decode == "full"
    if full and soundness.is_sound(data):
        return data, ""
    if header.whole and (not full or jpeg_header.has_end(data, header.scan)):
        return data, _corruption(data, policy) if full else ""
    if policy.truncated != "keep":
        zeros = len(data) - len(data.rstrip(b"\0"))
        padded = f", and its last {zeros} bytes are zero" if zeros > 1 else ""
        raise jpeg_header.BadImageError(
            "truncated",
            "a JPEG must end in an EOI marker, got none of its own after its header in "
            f"{len(data)} bytes: the file is cut short{padded}",
        )
    # The missing part decodes as gray; without an end marker, decoding fails.
    completed = data + jpeg_header.EOI
    try:
        soundness.check_jpeg(completed, damage=False)
    except jpeg_header.BadImageError as error:
        raise jpeg_header.BadImageError("truncated", error.detail) from error
    if not jpeg_header.has_end(completed, header.scan):
        raise jpeg_header.BadImageError(
            "truncated",
            f"a JPEG that is cut short must be cut in a scan, got {len(data)} bytes "
            "that end in another segment",
        )
    return completed, "completed_truncated"


def _corruption(data: bytes, policy: Policy) -> str:
    """Decodes a JPEG; returns "kept_corrupt" for damage that the policy keeps.

    Raises:
        BadImageError: If it does not decode, or is damaged and must not be kept.
    """
    try:
        soundness.check_jpeg(data, damage=policy.corrupt != "ignore")
    except jpeg_header.BadImageError as error:
        if error.reason != "corrupt" or policy.corrupt != "keep":
            raise
        return _CORRUPT
    return ""


def _actions(header: jpeg_header.Header, policy: Policy) -> list[str]:
    """Returns the decisions for which the JPEG is decoded and encoded again.

    Scaling down is not among them.

    Raises:
        BadImageError: If the policy refuses the kind of JPEG.
    """
    actions = []
    if header.num_components == 4:
        kind = "ycck" if header.adobe_transform else "cmyk"
        _require_convert(policy.cmyk, kind, f"got a JPEG in {kind.upper()}")
        actions.append(f"converted_{kind}")
    elif header.num_components == 1 and policy.grayscale != "keep":
        _require_convert(policy.grayscale, "grayscale", "got a grayscale JPEG")
        actions.append("converted_grayscale")
    process = header.process
    if process in jpeg_header.ARITHMETIC:
        _require_convert(policy.other_format, "other_format", "got arithmetic coding")
        actions.append("converted_arithmetic")
    elif process == jpeg_header.PROGRESSIVE:
        if policy.progressive == "baseline" or policy.baseline:
            actions.append("converted_progressive")
    elif process == jpeg_header.EXTENDED and policy.baseline:
        actions.append("converted_extended")
    if header.orientation != 1 and policy.exif_orientation == "apply":
        actions.append("rotated_exif")
    return actions


def _require_convert(choice: str, reason: str, got: str) -> None:
    """Raises BadImageError unless the choice of the policy is "convert"."""
    if choice != "convert":
        raise jpeg_header.BadImageError(
            reason,
            f"{got}, which --{_POLICY_OF_REASON.get(reason, reason)}={choice} refuses",
        )


def _notes(header: jpeg_header.Header, fault: str) -> list[str]:
    """Returns the decisions about a JPEG stored byte for byte."""
    notes = [fault] if fault else []
    if header.num_components == 1:
        notes.append("kept_grayscale")
    if header.process == jpeg_header.PROGRESSIVE:
        notes.append("kept_progressive")
    if header.orientation != 1:
        notes.append("kept_exif")
    return notes or ["kept"]


def _prepare_other(data: bytes, policy: Policy) -> Prepared:
    """Converts an image of another format than JPEG, or raises BadImageError."""
    if not data:
        raise jpeg_header.BadImageError("zero_byte", "an image must have bytes, got 0")
    kind = formats.sniff(data)
    if kind is None:
        raise jpeg_header.BadImageError(
            "not_an_image",
            "an image must begin as JPEG, PNG, GIF, WebP, BMP, TIFF, AVIF, HEIC, "
            "JPEG 2000 or another format that Pillow reads, got "
            f"{data[:12]!r}",
        )
    _require_convert(policy.other_format, "other_format", f"got an image in {kind}")
    if (remedy := formats.remedy(kind)) is not None:
        raise jpeg_header.BadImageError(
            "no_decoder",
            f"Pillow must be able to read the format {kind}, and cannot here: {remedy}",
        )
    from converters.images import pillow

    size, decoded = pillow.read_size(data, kind)
    limits.check_pixels(*size, policy)
    limits.check_decoding(*decoded, policy)
    most = policy.max_decoded_pixels
    picture = pillow.decode_other(data, kind, max_pixels=most)
    if picture.image.mode == "L" and policy.grayscale == "skip":
        _require_convert("skip", "grayscale", f"got a grayscale {kind}")
    actions = [f"converted_{kind.lower()}"]
    smaller = policy.fit(picture.image.height, picture.image.width)
    if smaller is not None:
        picture = picture._replace(image=pillow.resize(picture.image, smaller))
    if policy.exif_orientation == "apply" and picture.orientation != 1:
        picture = pillow.upright(picture)
        actions.append("rotated_exif")
    return _encode(data, picture, actions, policy, resized=smaller is not None)


def _encode(
    data: bytes,
    picture: "pillow.Picture",
    actions: list[str],
    policy: Policy,
    *,
    resized: bool,
) -> Prepared:
    """Encodes a picture as the policy says.

    Args:
        data: Content of the source file.
        picture: Its pixels, scaled and turned as they are to be stored.
        actions: The decisions so far; "shrunk" and "kept_exif" are added where they
            apply.
        policy: The policy.
        resized: Whether the picture was scaled down.
    """
    from converters.images import pillow

    image = picture.image
    if policy.grayscale == "convert" and image.mode == "L":
        image = image.convert("RGB")
    picture = picture._replace(image=image)
    if policy.optimize == "420":
        picture = picture._replace(subsampling=2)
    quality = policy.quality
    if quality is None and resized:
        quality = shrink.DEFAULT_QUALITY
    elif quality is None and not picture.tables:
        quality = REENCODE_QUALITY
    optimize = policy.optimize != "none"
    encoded = pillow.encode(picture, quality=quality, optimize=optimize)
    psnr = None
    # An image of another format is encoded in any case: quality and optimize alone do
    # not make such an image "shrunk".
    if resized or (policy.squeezes and data.startswith(jpeg_header.MAGIC)):
        actions = [*actions, _SHRUNK]
        psnr = shrink.psnr(image, encoded) if shrink.in_sample(data) else None
    if picture.orientation != 1:
        actions = [*actions, "kept_exif"]
    return Prepared(
        encoded, image.height, image.width, "+".join(actions), psnr, image.mode == "L"
    )
