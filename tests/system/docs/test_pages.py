"""The pages with commands run as a reader runs them, and show what is printed.

`make test` follows the first steps of a newcomer; `make torture` all pages, on the
reference stack and on the newest TensorFlow. REWRITE_GOLDEN=1 writes the outputs again.
"""

import contextlib
import pathlib
import re
import shutil

import pytest

from tests.house.code import ROOT
from tests.support.data.made_once import made_once
from tests.support.faults.torture import IS_LONG
from tests.support.processes import pages
from tests.support.processes.warm_python import WarmPython
from tests.support.servers import s3_server

# Pages with a data set "DIR" are run by tests/house/test_readme.py, in one process.
PAGES = sorted(
    path
    for path in (ROOT / "docs").rglob("*.md")
    if re.search("^```(console|python)", path.read_text(), re.M)
    and '"DIR"' not in path.read_text()
    and "generated" not in path.parts
)
# The page whose folder the other pages go on with, and the end of its part.
START, END_OF_START = ROOT / "docs/start.md", "<!-- the other pages begin here -->"
BUCKET = "s3://bucket"
# Pages of `make test`: one for each kind of block and reader.
FIRST = ("own_photos", "bad_data", "s3", "convert")

# No weights can be downloaded here. Those of the page on fine-tuning are trained on
# other classes, which stand for ImageNet's.
WEIGHTS = 'weights="imagenet"'
TRAIN_WEIGHTS = """
import keras, tfpipe
options = {"recipe": tfpipe.recipes.keras("MobileNetV2"), "image_size": 96}
train = tfpipe.imagenet_train("others", batch_size=4, **options)
body = keras.applications.MobileNetV2(
    alpha=0.35, include_top=False, weights=None, input_shape=(96, 96, 3), pooling="avg"
)
head = keras.layers.Dense(train.num_classes, activation="softmax")
model = keras.Sequential([body, head])
model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
model.fit(train.for_keras(), epochs=1, verbose=0)
body.save_weights("body.weights.h5")
"""


@pytest.fixture(scope="session")
def programs(
    tmp_path_factory: pytest.TempPathFactory,
    warm_python: WarmPython,
    wheel_dir: pathlib.Path,
) -> pages.Programs:
    return pages.Programs(
        tmp_path_factory.mktemp("programs"), warm=warm_python, wheel_dir=wheel_dir
    )


@pytest.fixture
def begun(
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: pathlib.Path,
    programs: pages.Programs,
) -> pathlib.Path:
    """A folder in which START has been followed to the end of its first tab."""

    def follow(folder: pathlib.Path) -> None:
        with contextlib.closing(pages.FreshReader(folder, programs)) as reader:
            pages.followed(START.read_text().partition(END_OF_START)[0], reader)

    shutil.copytree(made_once(tmp_path_factory, "begun", follow), tmp_path / "begun")
    return tmp_path / "begun"


@pytest.fixture
def weights(
    tmp_path_factory: pytest.TempPathFactory, programs: pages.Programs
) -> pathlib.Path:
    """Weights of a body that has learned three classes, other ones than START has."""

    def learn(folder: pathlib.Path) -> None:
        with contextlib.closing(pages.FreshReader(folder, programs)) as reader:
            reader.shell(
                "tfpipe synthesize --output_dir=drawn --num_images=12 --num_classes=6 "
                "--size_scale=0.3 --seed=7"
            )
            reader.shell("mkdir photos; mv $(ls -d drawn/train/* | tail -3) photos")
            reader.shell("tfpipe convert folder photos others")
            reader.python(TRAIN_WEIGHTS)

    return made_once(tmp_path_factory, "weights", learn) / "body.weights.h5"


def test_start(tmp_path: pathlib.Path, programs: pages.Programs) -> None:
    with contextlib.closing(pages.FreshReader(tmp_path, programs)) as reader:
        pages.check(START, reader)


@pytest.mark.parametrize(
    "path", [path for path in PAGES if path != START], ids=lambda path: path.stem
)
def test_page(
    path: pathlib.Path,
    begun: pathlib.Path,
    programs: pages.Programs,
    request: pytest.FixtureRequest,
) -> None:
    if path.stem not in FIRST and not IS_LONG:
        pytest.skip("TORTURE=1 follows all pages")
    text, replaced = path.read_text(), {}
    if "$ horovodrun" in text:
        pytest.importorskip("horovod")
    if BUCKET in text:
        replaced[BUCKET] = request.getfixturevalue("s3_folder")
        own = s3_server.environment(request.getfixturevalue("s3_address"))
        programs = programs.with_environment(own)
    if WEIGHTS in text:
        replaced[WEIGHTS] = f"weights={str(request.getfixturevalue('weights'))!r}"

    with contextlib.closing(pages.FreshReader(begun, programs, replaced)) as reader:
        pages.check(path, reader)
