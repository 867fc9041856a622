"""What projects keep of their requests, for those who ask for it: bodies and answers, redacted,
sealed and for a few hours.

`queue` takes them from the web process, `store` redacts (`redaction`, `documents`), seals
(`sealed`) and stores them, `reading` shows them and says so in the log.
Off unless a project says otherwise. No text is ever written in the clear, nor logged.
"""
