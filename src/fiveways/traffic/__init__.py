"""Realistic traffic for a real hub: workers and callers in every protocol it speaks, and some who behave badly."""
