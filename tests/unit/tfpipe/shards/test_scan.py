import gzip
import os
import shutil
import zlib

import numpy as np
import pytest

import tfpipe
from tests.support.data.foreign import write_shard
from tfpipe.shards import index, records, scan


@pytest.fixture(autouse=True)
def cache_dir(tmp_path, monkeypatch):
    """Where scans go that cannot be kept beside the shards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tfpipe"


@pytest.fixture
def bare_dir(data_dir, tmp_path):
    """The shards of the data set alone."""
    folder = tmp_path / "bare"
    folder.mkdir()
    for path in [*data_dir.glob("train-*"), *data_dir.glob("validation-*")]:
        shutil.copy2(path, folder)
    return folder


def record_ids(source):
    pipeline = tfpipe.Pipeline(source, [tfpipe.Interleave()])
    return [int(record["record_id"]) for record in pipeline.build()]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_scan_finds_what_the_index_says(data_dir, bare_dir, split):
    expected = index.load(data_dir)

    found = scan.scan(bare_dir, split)

    catalog = index.load_catalog(data_dir, split, ["byte_offset"])
    assert found.byte_offsets.tolist() == catalog["byte_offset"].tolist()
    assert found.byte_offsets.dtype == np.int64
    assert [
        (shard.name, shard.num_records, shard.num_bytes)
        for shard in found.index.splits[split]
    ] == [
        (shard.name, shard.num_records, shard.num_bytes)
        for shard in expected.splits[split]
    ]
    assert list(found.index.splits) == [split]


def test_source_reads_shards_without_an_index_in_the_same_order(data_dir, bare_dir):
    options = {"seed": 3, "window_size": 8, "block_length": 2}
    indexed = tfpipe.TFRecordSource(data_dir, "train", **options)

    scanned = tfpipe.TFRecordSource(bare_dir, "train", **options)

    assert record_ids(scanned) == record_ids(indexed)
    assert scanned.steps_per_epoch == 24


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-{:05}-of-00003", "train"),
        ("imagenet2012-train.tfrecord-{:05}-of-00003", "train"),
        ("my_set-2-test.tfrecord-{:05}-of-00003", "test"),
        ("train-{:05}-of-00003.tfrecord", "train"),
    ],
)
def test_names_of_other_tools_are_understood(bare_dir, tmp_path, name, split):
    folder = tmp_path / "renamed"
    folder.mkdir()
    for number in range(3):
        shutil.copy(
            bare_dir / f"train-0000{number}-of-00003", folder / name.format(number)
        )
    for other in ("dataset_info.json", "train-labels.txt", "train-1-of-3"):
        (folder / other).write_text("{}")

    found = scan.scan(folder, split)

    assert scan.find_shards(folder) == {split: [name.format(i) for i in range(3)]}
    assert found.index.num_records(split) == 24


def test_result_is_kept_beside_the_shards_and_used(bare_dir, capsys, cache_dir):
    first = scan.scan(bare_dir, "train")
    said = capsys.readouterr()
    second = scan.scan(bare_dir, "train")

    assert "scanning 3 shards of split 'train'" in said.err
    assert f"kept in {bare_dir / '.tfpipe'}" in said.err
    assert said.out == ""
    assert capsys.readouterr().err == ""
    assert second.byte_offsets.tolist() == first.byte_offsets.tolist()
    assert second.index == first.index
    assert [path.name for path in (bare_dir / ".tfpipe").iterdir()] == ["train.npz"]
    assert not cache_dir.exists()


def test_folder_that_cannot_be_written_is_kept_in_the_cache(
    bare_dir, capsys, cache_dir
):
    (bare_dir / ".tfpipe").write_text("a file where the folder would be")

    scan.scan(bare_dir, "train")
    assert f"kept in {cache_dir}" in capsys.readouterr().err
    scan.scan(bare_dir, "train")

    assert capsys.readouterr().err == ""
    (kept,) = cache_dir.rglob("*.npz")
    assert kept.name == "train.npz"


def test_scan_that_can_be_kept_nowhere_is_done_again(
    bare_dir, capsys, tmp_path, monkeypatch
):
    (bare_dir / ".tfpipe").write_text("")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    for _ in range(2):
        assert scan.scan(bare_dir, "train").index.num_records("train") == 24
        assert "kept in memory only" in capsys.readouterr().err


def test_only_the_shard_that_changed_is_scanned_again(bare_dir, capsys):
    first = scan.scan(bare_dir, "train")
    shard, other = (bare_dir / f"train-0000{number}-of-00003" for number in (1, 2))
    shutil.copy(other, shard)
    capsys.readouterr()

    second = scan.scan(bare_dir, "train")

    assert "scanning 1 shard" in capsys.readouterr().err
    assert second.byte_offsets[:8].tolist() == first.byte_offsets[:8].tolist()
    assert second.byte_offsets[8:16].tolist() == first.byte_offsets[16:].tolist()
    assert second.index != first.index


def test_time_of_change_alone_makes_a_shard_changed(bare_dir, capsys):
    scan.scan(bare_dir, "train")
    os.utime(bare_dir / "train-00000-of-00003", ns=(1, 1))
    capsys.readouterr()

    scan.scan(bare_dir, "train")

    assert "scanning 1 shard" in capsys.readouterr().err


def rewrite(path, *, find, replace):
    """Gives a shard records of the same sizes and other content, with right CRCs."""
    content = path.read_bytes()
    places = records.scan(path)
    with open(path, "r+b") as file:
        for offset, size, _ in [*places]:
            data = content[offset + records.HEADER_BYTES : offset + size - 4]
            file.seek(offset)
            file.write(b"".join(records.frame([data.replace(find, replace)])))


def test_other_records_of_equal_sizes_are_other_data(bare_dir, tmp_path):
    other_dir = shutil.copytree(bare_dir, tmp_path / "other")
    for path in other_dir.glob("train-*"):
        rewrite(path, find=b"n01440764_", replace=b"n99999999_")

    one, other = (tfpipe.TFRecordSource(d, "train") for d in (bare_dir, other_dir))

    assert [s.num_bytes for s in one.index.splits["train"]] == [
        s.num_bytes for s in other.index.splits["train"]
    ]
    assert one.digest != other.digest
    with pytest.raises(ValueError, match="was replaced since then"):
        other.position(one.advance(tfpipe.State()))


def test_shard_rewritten_in_place_with_its_old_time_is_other_data(bare_dir):
    shard = bare_dir / "train-00000-of-00003"
    before, times = tfpipe.TFRecordSource(bare_dir, "train"), shard.stat()
    rewrite(shard, find=b"n01440764_", replace=b"n99999999_")
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))

    assert tfpipe.TFRecordSource(bare_dir, "train").digest != before.digest


def test_the_same_records_elsewhere_are_the_same_data(bare_dir, tmp_path):
    copy = shutil.copytree(bare_dir, tmp_path / "copy")
    for path in copy.glob("train-*"):
        os.utime(path, ns=(1, 1))

    one, other = (tfpipe.TFRecordSource(d, "train") for d in (bare_dir, copy))

    assert one.digest == other.digest


def read_cached(folder, cache):
    source = tfpipe.TFRecordSource(folder, "train")
    pipeline = tfpipe.Pipeline(source, [tfpipe.Interleave(), cache])
    return {e["record"] for e in pipeline.build().as_numpy_iterator()}


def stored(folder):
    """The data of all records of the split."""
    paths = folder.glob("train-*")
    return {found.data for path in paths for found in records.read(path)}


@pytest.fixture
def filled_cache(bare_dir, tmp_path):
    """A cache that holds the records of `bare_dir`."""
    cache = tfpipe.Cache("disk", tmp_path / "caches")
    assert read_cached(bare_dir, cache) == stored(bare_dir)
    return cache


def test_cache_of_shards_without_an_index_is_of_their_content(
    bare_dir, filled_cache, tmp_path
):
    other_dir = shutil.copytree(bare_dir, tmp_path / "other")
    for path in other_dir.glob("train-*"):
        rewrite(path, find=b"n01440764_", replace=b"n99999999_")

    found = read_cached(other_dir, filled_cache)

    assert found == stored(other_dir) != stored(bare_dir)


def test_damaged_file_of_a_scan_is_made_again(bare_dir, capsys):
    first = scan.scan(bare_dir, "train")
    path = bare_dir / ".tfpipe" / "train.npz"
    content = path.read_bytes()
    for damaged in (b"", b"nonsense", content[: len(content) // 2]):
        path.write_bytes(damaged)
        capsys.readouterr()

        again = scan.scan(bare_dir, "train")

        assert again.byte_offsets.tolist() == first.byte_offsets.tolist()
        assert "scanning 3 shards" in capsys.readouterr().err


def test_shard_cut_short_is_named_with_the_offset(bare_dir):
    places = scan.scan(bare_dir, "train").byte_offsets[8:16].tolist()
    shard = bare_dir / "train-00001-of-00003"
    shard.write_bytes(shard.read_bytes()[:-5])

    with pytest.raises(
        tfpipe.errors.BadIndexError,
        match=rf"Shard {shard}: record 7 at byte {places[-1]} is cut short",
    ):
        tfpipe.TFRecordSource(bare_dir, "train")


def test_damaged_header_and_compression_are_named(bare_dir):
    shard = bare_dir / "train-00001-of-00003"

    shard.write_bytes(b"nonsense" * 9)
    with pytest.raises(
        tfpipe.errors.BadIndexError, match=f"{shard}: record 0 at byte 0"
    ):
        scan.scan(bare_dir, "train")
    shard.write_bytes(b"\x1f\x8b" + b"0" * 99)
    with pytest.raises(
        tfpipe.errors.BadIndexError, match=f"{shard} must not be compressed"
    ):
        scan.scan(bare_dir, "train")


@pytest.mark.parametrize("num_sound", [0, 1, 7])
def test_damage_that_is_left_to_reading_is_one_last_record(bare_dir, capsys, num_sound):
    shard = bare_dir / "train-00001-of-00003"
    end = [*records.scan(shard)][num_sound].byte_offset
    content = bytearray(shard.read_bytes())
    content[end] ^= 1
    shard.write_bytes(content)

    found = scan.scan(bare_dir, "train", skips_damage=True)

    assert found.index.splits["train"][1].num_records == num_sound + 1
    assert found.byte_offsets[8 + num_sound] == end
    said = capsys.readouterr().err
    assert f"{num_sound} record" in said
    assert f"the last {len(content) - end} bytes count as one damaged record" in said


def test_missing_and_foreign_shards_are_named(bare_dir):
    (bare_dir / "train-00001-of-00003").rename(bare_dir / "other-00000-of-00001")

    with pytest.raises(
        tfpipe.errors.BadIndexError,
        match=r"numbered 0 to 2, .*got 2 shards, see number 1",
    ):
        tfpipe.TFRecordSource(bare_dir, "train")
    tfpipe.TFRecordSource(bare_dir, "validation")  # is complete

    shutil.copy(bare_dir / "train-00000-of-00003", bare_dir / "b-train-00001-of-00003")
    shutil.copy(bare_dir / "train-00000-of-00003", bare_dir / "b-train-00000-of-00003")
    with pytest.raises(tfpipe.errors.BadIndexError, match="got 4 shards"):
        scan.scan(bare_dir, "train")


def test_unknown_split_is_refused(bare_dir):
    with pytest.raises(
        tfpipe.errors.BadIndexError, match=r"'test'.*one of train, validation"
    ):
        tfpipe.TFRecordSource(bare_dir, "test")


def test_data_set_with_an_index_and_folder_without_shards_are_not_scanned(
    data_dir, tmp_path
):
    assert not scan.is_needed(data_dir)
    assert not scan.is_needed(tmp_path)
    assert not scan.is_needed(tmp_path / "missing")
    with pytest.raises(tfpipe.errors.BadIndexError, match=r"index\.json is missing"):
        tfpipe.TFRecordSource(tmp_path, "train")


def test_shard_without_records_is_a_shard(bare_dir):
    (bare_dir / "train-00001-of-00003").write_bytes(b"")

    source = tfpipe.TFRecordSource(bare_dir, "train", shuffle="none")

    assert [s.num_records for s in source.index.splits["train"]] == [8, 0, 8]
    assert record_ids(source) == list(range(16))
    assert record_ids(tfpipe.TFRecordSource(bare_dir, "train", shuffle="none")) == (
        list(range(16))
    )


def test_label_base_is_unknown_and_the_error_says_what_to_do(bare_dir):
    message = rf"converters\.verify {bare_dir} --level=crc --write_index"
    source = tfpipe.TFRecordSource(bare_dir, "train")

    with pytest.raises(tfpipe.errors.BadIndexError, match=message):
        _ = source.index.label_base
    with pytest.raises(tfpipe.errors.BadIndexError, match=message):
        tfpipe.imagenet_train(bare_dir, batch_size=4)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = source.index.nonsense
    assert "label_base=" not in repr(source.index)


def own_shards(folder, names, count=2):
    for number, name in enumerate(names):
        records = ({"img": b"x", "y": number} for _ in range(count))
        write_shard(folder / name, records)
    return folder


def test_shards_of_any_name_are_found_by_a_pattern_2_before_10(tmp_path, capsys):
    names = ["b/part-10.tfrec", "b/part-2.tfrec", "a/part-30.tfrec", "b/part-2b.tfrec"]
    own_shards(
        tmp_path,
        [*names, "b/other.tfrec", "b/.part-0.tfrec", "b/dali_idx/part-0.tfrec"],
    )

    source = tfpipe.TFRecordSource(tmp_path, files="**/part-*.tfrec", shuffle="none")

    found = [shard.name for shard in source.shards]
    assert found == [names[2], names[1], names[3], names[0]]
    assert source.paths == [str(tmp_path / name) for name in found]
    assert record_ids(source) == list(range(8))
    assert (source.split, source.in_order().paths) == ("train", source.paths)
    capsys.readouterr()
    tfpipe.TFRecordSource(tmp_path, files="**/part-*.tfrec")
    assert capsys.readouterr().err == ""  # the scan was kept
    assert tfpipe.TFRecordSource(tmp_path, files="b/o*").order.num_records == 2


def test_pattern_goes_before_an_index(data_dir, tmp_path):
    folder = shutil.copytree(data_dir, tmp_path / "copy")

    source = tfpipe.TFRecordSource(folder, files="validation-*", shuffle="none")

    assert record_ids(source) == list(range(7))
    with pytest.raises(tfpipe.errors.BadIndexError, match=r"Parse\(label_base=0\)"):
        tfpipe.imagenet_train(source)


def test_pattern_without_a_match_says_what_is_there(tmp_path):
    own_shards(tmp_path, ["a.tfrecord", "more/b.tfrecord"])

    with pytest.raises(
        tfpipe.errors.BadIndexError, match=r"There are a\.tfrecord, more/\."
    ):
        tfpipe.TFRecordSource(tmp_path, files="*.tfrec")
    for wrong in ("", "/tmp/*", 3):
        with pytest.raises(
            (ValueError, TypeError), match=r"TFRecordSource\.files must"
        ):
            tfpipe.TFRecordSource(tmp_path, files=wrong)


def test_one_file_by_two_names_is_refused(tmp_path):
    own_shards(tmp_path, ["a.tfrecord"])
    (tmp_path / "latest.tfrecord").symlink_to(tmp_path / "a.tfrecord")

    with pytest.raises(
        tfpipe.errors.BadIndexError,
        match=r"a\.tfrecord and latest\.tfrecord .*the same file",
    ):
        tfpipe.TFRecordSource(tmp_path, files="*.tfrecord")
    assert tfpipe.TFRecordSource(tmp_path, files="latest*").order.num_records == 2


@pytest.mark.parametrize(
    ("kind", "unpack"),
    [("GZIP", gzip.decompress), ("ZLIB", zlib.decompress)],
)
def test_compressed_shard_is_refused_with_the_command_that_unpacks_it(
    tmp_path, kind, unpack
):
    path = tmp_path / "a.tfrecord"
    write_shard(path, [{"y": 1}], kind)

    with pytest.raises(tfpipe.errors.BadIndexError, match=rf"got {kind}: .*OLD > NEW"):
        tfpipe.TFRecordSource(tmp_path, files="*")
    path.write_bytes(unpack(path.read_bytes()))
    assert tfpipe.TFRecordSource(tmp_path, files="*").order.num_records == 1


def test_record_whose_length_looks_like_gzip_is_read(tmp_path):
    """The length comes first in a record, and its low bytes come first."""
    data = b"x" * 0x8B1F
    (tmp_path / "a").write_bytes(b"".join(records.frame([data])))

    assert tfpipe.TFRecordSource(tmp_path, files="a").order.num_records == 1


def test_thousands_of_shards_and_empty_ones_are_read(tmp_path):
    """A stat, an open and a read each: the limit of a unit test bounds the time."""
    own_shards(tmp_path, ["0.tfrecord"], count=1)
    content = (tmp_path / "0.tfrecord").read_bytes()
    for number in range(1, 2000):
        path = tmp_path / f"{number}.tfrecord"
        path.write_bytes(content if number % 3 else b"")

    source = tfpipe.TFRecordSource(tmp_path, files="*.tfrecord")

    assert len(source.shards) == 2000
    assert source.order.num_records == 1334
    assert source.shards[-1].name == "1999.tfrecord"
