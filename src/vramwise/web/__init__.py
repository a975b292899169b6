"""The page and its back ends: one JSON contract, answered in the browser and by a local server.

api        a name and a body to an answer, without any web framework: what Pyodide runs too
answers    what each name answers
"""
