from litebert.cli import main

main()
