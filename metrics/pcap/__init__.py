"""Convert captures to tables: pcap and pcapng files to Arrow record batches, and the Spark Data Source ``pcap``.

The kernels use files, NumPy and Arrow, neither Spark nor processes. All records of a host are in one file, so
everything that needs a host's whole view (connections, reassembly, frames) happens while its file is read, before any
shuffle. Payload never enters a table.

Without Spark (``metrics.pcap.tables``)::

    reading = Reading(("conns", "frames"), traced="traced.parquet", epoch_offset_ns=offset)
    for name, table in read_tables(path, reading): ...

With Spark (``metrics.pcap.source``), several tables in one pass, as their union with a leading column ``table``::

    register(spark)  # the Data Source, and its code for the executors
    options = {"path": f"{run}/capture", "tables": "conns,frames,spans,wire,captures", "traced": traced}
    everything = spark.read.format("pcap").options(**options, epoch_offset_ns=offset, parallelism=cores).load()
    everything.write.partitionBy("table").parquet(staging)

If the capture has the payload, frames come from it. Otherwise, with ``traced`` (a Parquet file or directory of
``schemas.TRACED``), they come from the stream offsets in the peers' traces, which are looked up by TCP sequence number:
a binary search per stream inside the reader, far cheaper than a range join and independent of what was captured beyond
the headers.
"""
