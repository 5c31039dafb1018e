"""Telling people that a dynamic table or a task is in trouble, and that it is well again.

`incidents` decides, from what is known of the lake, which troubles begin and end; `messages` words them; `targets` and
`sealing` say where to, without giving it away; `sending` sends; `watch` does all of it, again and again.
"""
