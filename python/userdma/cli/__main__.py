from userdma.cli import main

main(prog_name="userdma")
