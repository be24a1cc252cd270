"""Anthropic's Messages API: requests and streamed responses."""
