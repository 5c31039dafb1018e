"""A lake behind a server, with the face of one that is open here. Needs no Java."""

from headrace.client.lake import RemoteLake, RemoteResult, ResultCut, connect

__all__ = ["RemoteLake", "RemoteResult", "ResultCut", "connect"]
