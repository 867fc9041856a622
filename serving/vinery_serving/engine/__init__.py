"""The engine process: one OpenVINO GenAI pipeline, one thread, one socket."""
