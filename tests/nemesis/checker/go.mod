module crane/tests/nemesis/checker

go 1.19

require github.com/anishathalye/porcupine v1.0.2
