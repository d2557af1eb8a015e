"""Reports that go somewhere: files, webhooks, mails, against servers that listen on this machine."""
