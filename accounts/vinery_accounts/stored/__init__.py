"""What the server remembers: responses in chains, conversations, and stored chats."""
