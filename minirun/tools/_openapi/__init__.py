"""
Tools from OpenAPI documents. `minirun.tools.openapi` is the public name.

    _document     a document of any form, read and bounded; what its references lead to
    _schemas      the schemas in it, as those that minirun checks and models are shown
    _files        what of a body is a file
    _security     who may ask, and with which credentials
    _operations   what may be asked: names, parameters, bodies
    _multipart    bodies with files
    _request      the request that a call becomes
    _answer       the result, or the error, that a response becomes
    _tool         the tool

A document is text of a stranger. It decides what the model is told of the API, within bounds, and nothing else: where
requests go, and with which secrets, is the program's to say.
"""
