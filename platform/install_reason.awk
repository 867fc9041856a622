# Prints why pip has failed, by its log: the reason in a sentence, what to do, and pip's own lines.
# `make install` runs it.

/No space left on device|Errno 28/ { disk = 1 }
/Temporary failure in name resolution|Name or service not known|NewConnectionError|ConnectTimeout|ReadTimeout|Connection refused|Network is unreachable|ProxyError|No route to host|getaddrinfo failed|Failed to establish a new connection/ { network = 1 }
/SSLError|CERTIFICATE_VERIFY_FAILED/ { certificate = 1 }
/Permission denied|Errno 13/ { permission = 1 }
/requires a different Python|Requires-Python/ { python = 1 }
/No matching distribution found for/ { missing = $0; sub(/.*found for /, "", missing) }
/hashes? (do|does) not match|THESE PACKAGES DO NOT MATCH/ { hash = 1 }
/^ *(ERROR|error)[: ]|[Ee]rrno|Error:/ {
    line = $0
    sub(/^ +/, "", line)
    if (!seen[line]++) lines[++count] = substr(line, 1, 200)
}

function explain(reason, cure) {
    print "vinery: the installation failed: " reason
    print "  " cure
}

END {
    offline = "Without a network, point pip to a folder of wheels: PIP_NO_INDEX=1 PIP_FIND_LINKS=/path/to/wheels make install"
    if (disk) {
        explain("the disk is full.", "Free some space, about 2 GB, and try again. TMPDIR names another folder for temporary files.")
    } else if (certificate) {
        explain("the certificate of the package index is not trusted.", "Set PIP_CERT to the certificate of your proxy.")
    } else if (network) {
        explain("pip could not reach the package index.", "Check the network, or set HTTPS_PROXY or PIP_INDEX_URL. " offline)
    } else if (hash) {
        explain("a downloaded package has another hash than requirements.lock.", "Try again. If it stays so, do not install: the package index has other files.")
    } else if (missing && python) {
        explain("no version of " missing " is for this Python.", "Set PYTHON to another one, such as PYTHON=python3.12.")
    } else if (missing) {
        explain("the package index has no " missing " for this Python and this platform.", "Check PIP_INDEX_URL, or set PYTHON to another one, such as PYTHON=python3.12. OpenVINO has wheels for Linux (x86-64, ARM64), macOS and Windows. " offline)
    } else if (permission) {
        explain("a file may not be written.", "Check the owner of the folder of VENV and of pip's cache.")
    } else {
        explain("see pip's lines below.", offline)
    }
    for (i = count > 4 ? count - 3 : 1; i <= count; i++) print "    " lines[i]
    print "  All of its output is in install.log in the folder of VENV."
}
