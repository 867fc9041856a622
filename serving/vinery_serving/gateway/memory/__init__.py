"""What requests take from stored responses, and what answers leave there."""
