"""Copies a data set N times, so that no cache and no deduplication can hide a storage.

  python -m converters.replicate DIR --output_dir=OUT --copies=150
  python -m converters.replicate DIR --output_dir=OUT --target_bytes=22TB
  python -m converters.replicate DIR --output_dir=OUT --for_ram=512GB --num_hosts=9

DIR is a data set of a converter, in a folder or at a URL. OUT becomes one with as many
times the shards. By default the copies are distinct: each image decodes to the same
pixels in every copy, but its bytes differ, because its JPEG gets other Huffman codes.
Nothing is decoded, and nothing is lost. Labels, boxes and all other features stay.

  --mirror             half of the images of a copy are mirrored, without loss
  --reencode           decode and encode each image with other tables, for images
                       whose bits cannot be changed otherwise
  --enlarge=3          scale each image up by this factor and encode it: large images
                       from small ones; --quality=100 gives 1.3 MB an image
  --identical          copies with the same bytes, by reflink or hard link where the
                       file system has them: quick, but a cache serves all from one

--for_ram makes enough copies that the split that is trained on has 5 times the memory
of all hosts, as MLPerf Storage wants it, and more than --storage_cache. The arithmetic,
bytes, seconds and room are shown on stderr before the work. --dry_run shows them and
ends. Run the same command again to go on after an interruption. The same DIR, flags and
seed give the same bytes, whatever the number of workers and tasks.

The last line on stdout is one JSON object. Exit code: 0 done, 1 an error, 2 a dry run
found too little room.
"""
