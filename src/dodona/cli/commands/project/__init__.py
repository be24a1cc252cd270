"""Commands to set up a project, its notes, trees and rules."""
