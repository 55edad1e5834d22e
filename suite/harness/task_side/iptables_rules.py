"""Set rules of iptables and ip6tables for the ports of one cluster, and remove them at its end.

firewall.py runs it as a program: iptables_rules.py CHAIN UID PORT... It prints "closed" when the
rules are set, or the reason of a failure. It removes the rules when its standard input ends.
"""

import contextlib
import subprocess
import sys

IPV6 = "/proc/net/if_inet6"  # missing or empty where IPv6 is off


def tables():
    """Return the programs whose rules are needed here."""
    try:
        with open(IPV6) as file:
            return ["iptables", "ip6tables"] if file.read() else ["iptables"]
    except OSError:
        return ["iptables"]


def call(program, arguments):
    """Run a program; raise OSError with its first line of output if it fails."""
    done = subprocess.run(
        [program, "-w"] + arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise OSError(done.stderr.strip().splitlines()[0] if done.stderr.strip() else program)


def jumps(chain, uid):
    """Return rules that send connections of other users and other machines to the chain.

    They match new connections only, since the last packets of a closed connection have no owner.
    """
    other_user = ["-o", "lo", "-p", "tcp", "--syn", "-m", "owner", "!", "--uid-owner", uid]
    other_machine = ["!", "-i", "lo", "-p", "tcp", "--syn"]
    return [["OUTPUT"] + other_user + ["-j", chain], ["INPUT"] + other_machine + ["-j", chain]]


def close(chain, uid, ports):
    for program in tables():
        call(program, ["-N", chain])
        for port in ports:
            rule = ["-p", "tcp", "--dport", port, "-j", "REJECT", "--reject-with", "tcp-reset"]
            call(program, ["-A", chain] + rule)
        for jump in jumps(chain, uid):
            call(program, ["-I"] + jump)


def remove(chain, uid):
    """Remove all rules; ignore rules that were never set."""
    for program in tables():
        changes = [["-D"] + jump for jump in jumps(chain, uid)] + [["-F", chain], ["-X", chain]]
        for change in changes:
            with contextlib.suppress(OSError):
                call(program, change)


def main():
    chain, uid, *ports = sys.argv[1:]
    try:
        close(chain, uid, ports)
        print("closed", flush=True)
        sys.stdin.read()
    except OSError as error:
        print(error.strerror or error, flush=True)
        return 1
    finally:
        remove(chain, uid)
    return 0


if __name__ == "__main__":
    sys.exit(main())
