"""Direct reading: its settings, and what is said where tensorflow-io is of no use."""

import os
import sys
import types

import pytest
import tensorflow as tf

from tfpipe.location import direct
from tfpipe.location.location import Location


@pytest.fixture
def schemes(monkeypatch):
    """The schemes that TensorFlow is made to know; none at first."""
    known = []
    monkeypatch.setattr(tf.io.gfile, "get_registered_schemes", lambda: known)
    monkeypatch.setattr(direct, "_skip_destructors_at_exit", lambda: None)
    return known


def test_it_says_that_tensorflow_io_is_missing(schemes, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_io", None)

    with pytest.raises(ValueError, match=r"which is not installed\. Leave shard_cache"):
        direct.prepare(Location("hdfs://host/x"))


def test_it_says_that_tensorflow_io_does_not_load(schemes, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_io", types.ModuleType("tensorflow_io"))

    text = rf"does not load with TensorFlow {tf.__version__}\. .* TensorFlow 2\.16 or"
    with pytest.raises(ValueError, match=text):
        direct.prepare(Location("hdfs://host/x"))

    schemes.append("hdfs")
    direct.prepare(Location("hdfs://host/x"))


def test_a_scheme_that_it_cannot_read_is_refused():
    with pytest.raises(
        ValueError, match=r"one of s3://.*, got az://container/x\. Leave shard_"
    ):
        direct.prepare(Location("az://container/x"))


def test_settings_of_s3_are_those_of_aws(tmp_path):
    config = tmp_path / "config"
    config.write_text("[default]\nregion = eu-west-1\nendpoint_url = https://a.b\n")
    files = {
        "AWS_CONFIG_FILE": str(config),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }
    always = {"S3_DISABLE_MULTI_PART_DOWNLOAD": "1"}

    assert direct.s3_settings(files) == {
        **always,
        "S3_ENDPOINT": "https://a.b",
        "AWS_REGION": "eu-west-1",
    }
    local = files | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_REGION": "r"}
    assert direct.s3_settings(local) == {**always, "S3_ENDPOINT": "http://127.0.0.1:1"}


def test_only_s3_gets_the_settings_of_s3(schemes, monkeypatch, tmp_path):
    name = "S3_DISABLE_MULTI_PART_DOWNLOAD"
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv(name, "")  # is put back after the test
    monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "tensorflow_io", types.ModuleType("tensorflow_io"))
    schemes += ["hdfs", "s3"]

    direct.prepare(Location("hdfs://host/x"))
    assert name not in os.environ
    direct.prepare(Location("s3://bucket/x"))
    assert os.environ[name] == "1"
