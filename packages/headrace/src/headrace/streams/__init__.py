"""Table streams: cursors in the changes of a table that move exactly once.

Law: a stream at offset v read at version w gives the changes of versions v+1 … w; the commit of the statement that
read them and the move of the offset to w are one event, whatever dies in between.
"""
