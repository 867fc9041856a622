"""How the reference models are made: conversations, training, export and evaluation.

The conversations, the rendering and the evaluation cases need jinja2 only. The tokenizer, the
training and the export need the packages of `models/requirements.txt`.
"""
