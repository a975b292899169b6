"""`vramwise web`: the page and its API from this machine. Imported by that command alone: it needs the extra `[web]`.

guards     what every request passes: host, origin, size, time; the headers of every answer
workers    the processes that answer, so that one slow question, a hub that hangs or a crash holds up nobody
worker     such a process: reads questions from its parent, opens no file but what it was allowed
app        names of the API and files of the page
openapi    the API described, from the same definition as the scenario
"""
