"""How tiny-vision is made: pictures, questions about them, training, export and evaluation.

The scenes, the questions and the talks need no package, the drawing needs Pillow. The rest needs
the packages of `requirements.txt` here, whose transformers is newer than the other models'.
"""
