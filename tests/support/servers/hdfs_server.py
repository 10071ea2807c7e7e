"""A real HDFS on this host: a name node and a data node of Hadoop.

In: an empty folder; HADOOP_JARS, the folder of Hadoop's jars, as the source archive of
pyspark 2.4.8 has them in deps/jars. Out: host and port of the name node. Hadoop's web
pages want Jersey 1, which Spark leaves out: a class of three lines stands in.
"""

import contextlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Iterator

from tests.support.servers.s3_server import die_with_parent, free_ports
from tfpipe import errors
from tfpipe.location.files import Files

START_SECONDS = 90.0

_STAND_IN = """package com.sun.jersey.spi.container.servlet;
public class ServletContainer extends javax.servlet.http.HttpServlet {}
"""
_OPENED = ("java.lang", "java.util", "java.net", "java.nio", "sun.nio.ch")
_NODES = "org.apache.hadoop.hdfs.server"


def is_installed() -> bool:
    """Returns whether Java, Hadoop's jars and hdfs-native are here."""
    has_client = importlib.util.find_spec("hdfs_native") is not None
    return has_client and shutil.which("javac") is not None and bool(_jars())


def _jars() -> list[str]:
    folder = pathlib.Path(os.environ.get("HADOOP_JARS") or "/none")
    found = [str(path) for path in sorted(folder.glob("*.jar"))]
    return found if any("hadoop-hdfs" in path for path in found) else []


@contextlib.contextmanager
def serve(folder: pathlib.Path, ip: str = "127.0.0.1") -> Iterator[str]:
    """Runs both nodes on an address of this host; yields HOST:PORT of the name node."""
    name_node, data_node, *others = (f"{ip}:{port}" for port in free_ports(5))
    settings = {
        "fs.defaultFS": f"hdfs://{name_node}",
        "hadoop.tmp.dir": f"{folder}/data",
        "dfs.replication": "1",
        "dfs.datanode.address": data_node,
        "dfs.namenode.http-address": others[0],
        "dfs.datanode.ipc.address": others[1],
        "dfs.datanode.http.address": others[2],
        "dfs.webhdfs.enabled": "false",
        "dfs.permissions.enabled": "false",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    }
    java = _prepare(folder, settings)
    formatting = [*java, f"{_NODES}.namenode.NameNode", "-format", "-force"]
    subprocess.run(formatting, cwd=folder, check=True, capture_output=True)
    with contextlib.ExitStack() as stack:
        for node in ("namenode.NameNode", "datanode.DataNode"):
            log = stack.enter_context(open(folder / f"{node}.log", "ab"))
            process = subprocess.Popen(
                [*java, f"{_NODES}.{node}"],
                cwd=folder,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        _wait(name_node)
        yield name_node


def _prepare(folder: pathlib.Path, settings: dict[str, str]) -> list[str]:
    """Writes the settings and the stand-in; returns the start of Java's commands."""
    properties = (
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    text = f"<configuration>{''.join(properties)}</configuration>"
    for name in ("core-site.xml", "hdfs-site.xml"):
        (folder / name).write_text(text)
    (folder / "log4j.properties").write_text("log4j.rootLogger=OFF\n")
    for part in ("hdfs/WEB-INF", "datanode", "static"):
        (folder / "classes/webapps" / part).mkdir(parents=True)
    (folder / "ServletContainer.java").write_text(_STAND_IN)
    jars = ":".join(_jars())
    compiling = ["javac", "-cp", jars, "-d", "classes", "ServletContainer.java"]
    subprocess.run(compiling, cwd=folder, check=True, capture_output=True)
    opens = (f"--add-opens=java.base/{part}=ALL-UNNAMED" for part in _OPENED)
    memory = ("-Xmx300m", "-XX:+UseSerialGC")
    return ["java", *memory, *opens, "-cp", f"{folder}:{folder}/classes:{jars}"]


def _wait(name_node: str) -> None:
    """Waits until a file can be written, which needs both nodes."""
    end = time.monotonic() + START_SECONDS
    files = Files(f"hdfs://{name_node}", time_limit=2)
    while True:
        try:
            files.write("ready", b"ready")
            files.delete("ready")
            return
        except errors.RemoteError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
