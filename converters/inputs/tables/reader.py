"""Reads a table of images and labels: files, databases and queries over them.

In: places and names of columns in the words of a user. Out: `Listed`, with the rows of
the images for further columns of the catalog.
"""

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from converters.inputs.classes import (
    NO_LIST,
    ClassList,
    exported,
    of_parquet,
    only_list,
)
from converters.inputs.listed import Listed
from converters.inputs.meaning import TEXT, Meaning
from converters.inputs.reader import Reader, Workspace
from converters.inputs.tables import rows, scan, spool, sql, table_sources
from converters.inputs.tables.columns import Columns
from tfpipe.location.browse import Folder
from tfpipe.location.location import Location
from tfpipe.shards import index

if TYPE_CHECKING:
    import duckdb


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableReader(Columns, Reader):
    """Reads a table; the flags of the same names describe the fields."""

    input: str = dataclasses.field(repr=False)
    query: str | None = None
    table: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    root: str | None = None
    hive_columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.table and self.query is None:
            raise ValueError("--table is for --query, which must name it. Add --query.")
        for name in self.table:
            if name == scan.INPUT or not name.isidentifier():
                raise ValueError(
                    "--table must be named by letters, digits and underscores, but not "
                    f"{scan.INPUT}, the name of --input, got {name!r}."
                )

    def _sources(self) -> dict[str, table_sources.TableSource]:
        places = {scan.INPUT: ("--input", self.input)}
        places |= {name: (f"--table={name}", each) for name, each in self.table.items()}
        return {name: table_sources.find(*value) for name, value in places.items()}

    @property
    def recorded(self) -> Mapping[str, Any]:
        own = self.to_json()
        del own["root"]
        return own

    @property
    def slow_files(self) -> Sequence[str]:
        sources = self._sources().values()
        return [file for t in sources if not t.is_remote for file in t.files]

    def list_images(self, meaning: Meaning, workspace: Workspace) -> Listed:
        sources = self._sources()
        source = sources[scan.INPUT]
        root = _root(self.root, source)
        columns, split, by_file = scan.by_names(
            source, self, meaning, self.hive_columns
        )
        state = {
            "reader": self.recorded,
            "sources": [each.state() for each in sources.values()],
            "root": root.location.text,
            "by_file": by_file,
            "version": scan.ROWS_VERSION,
        }
        key = index.digest(json.dumps(state, sort_keys=True))
        folder = spool.folder_in(workspace, key)
        is_known = all(each.states() for each in sources.values())
        if not is_known and (folder / spool.ROWS_NAME).exists():
            print(
                f"Going on with the rows of {source.shown} that an earlier start of "
                f"this command read. If they were changed since, remove "
                f"{folder.parent} first.",
                file=sys.stderr,
            )
        with sql.connected(folder) as connection:
            path = scan.scan(connection, sources, self.query, columns, folder, by_file)
            try:
                states = source.states()
                listed = rows.read(connection, path, self, root, split, states, meaning)
            except Exception:
                if not is_known:  # the rows may be corrected without a trace
                    path.unlink()
                raise
            listed = listed.with_list(self._class_list(connection, source, meaning))
        if source.files:
            folders = [source.top, *(Location(file).parent for file in source.files)]
            listed = listed.in_folders(folders, meaning)
        if not os.path.isdir(top := os.path.expanduser(self.input)):
            return listed
        return listed._replace(apart=[*listed.folders_of_images(), Location(top)])

    def _class_list(
        self,
        connection: "duckdb.DuckDBPyConnection",
        source: table_sources.TableSource,
        meaning: Meaning,
    ) -> ClassList:
        if self.query is not None or source.kind != table_sources.PARQUET:
            return NO_LIST
        folder = Folder(source.folder)
        own = exported(folder)
        if own.origin or source.is_remote or meaning.label_type == TEXT:
            return own
        lists = of_parquet(connection, source.files, self.label_column)
        return only_list(lists, meaning)


def _root(value: str | None, source: table_sources.TableSource) -> rows.Root:
    if value is None:
        folders = {Location(file).parent.text for file in source.files}
        return rows.Root(
            location=source.folder, is_given=False, num_folders=len(folders)
        )
    location = Location.from_user("--root", value, expand_user=True)
    if location.is_local and not location.path.is_dir():
        raise ValueError(
            f"--root must be a folder, got {location.shown}: no such folder."
        )
    return rows.Root(location=location, is_given=True)
