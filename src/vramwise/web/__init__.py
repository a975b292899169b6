"""The page and its back ends: one JSON contract, answered in the browser and by a local server.

api        a name and a body to an answer, without any web framework: what Pyodide runs too
answers    what each name answers
mcp_tools  the same as tools for a model
server     the local server, imported by its commands alone
static     the page as a folder
page       HTML, styles and modules; worker.js starts the program in the browser
"""
