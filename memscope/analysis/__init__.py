"""Recording in, frozen result out; one question a file."""
