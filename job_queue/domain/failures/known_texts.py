"""The texts by which a failure is recognised, each with its class and its sentence.

All of these texts may come from a program of a user. Each line is short (see log_text), and each pattern repeats a
bounded number of characters. So the time is proportional to the length of the log.
"""

from job_queue.domain.failures.classes import FailureClass
from job_queue.domain.failures.clues import Weight, clues

_ECC = "A GPU reported an uncorrectable memory error (ECC)."
_XID = "48|61|62|63|64|74|79|92|94|95|110|119|12[0-1]|123|136|14[0-9]|150|15[4-6]"  # other Xids are errors of programs
_NO_GPU = "The driver does not reach a GPU."
_NOT_SHARED_MEMORY = r"^(?!.{0,999}(/dev/shm|</torch_))"  # which reports the same error as a disk
_EXIT = r"(exit ?code|return code|exit status|status code)s?\s{0,3}[:=]?\s{0,3}"
_NO_SUCH_FILE = r"(?:No such file or directory|can't open file|file not found|no file or directory)"

CLUES = (
    *clues(
        FailureClass.HARDWARE,
        Weight.CAUSE,
        [
            (
                "xid",
                "A GPU reported a hardware error (Xid {xid}).",
                rf"Xid ?(?:errors? ?)?(?:\([^)]{{1,40}}\))?[:= ]{{0,3}}(?P<xid>{_XID})\b",
            ),
            ("fallen off the bus|fell off the bus|fell off bus", "A GPU has fallen off the bus."),
            ("uncorrectable", _ECC, r"uncorrectable.{0,40}\b(ecc|memory)|ecc_uncorrectable|eccuncorrectable"),
            ("double bit|double-bit", _ECC, r"double.bit (ecc )?error"),
            ("contained ecc error", _ECC),
            ("nvlink error|nvlink fatal|nvswitch fatal", "A connection between GPUs (NVLink) has failed."),
            ("gpu is lost|lost gpu|gpu lost", "A GPU was lost."),
            ("unable to determine the device handle|rminitadapter failed|cannot attach gpu", _NO_GPU),
            ("failed to initialize nvml|nvml: failed|nvidia probe routine failed", _NO_GPU),
            ("system not yet initialized", "The NVSwitch fabric of the GPUs is not ready (CUDA error 802)."),
            (
                "cuda unknown error|cuda_error_unknown|error: unknown error",
                _NO_GPU,
                r"cuda.{0,40}unknown error|error_unknown",
            ),
            ("catastrophic error|hw_err", "A network device or an accelerator reported a hardware error."),
            ("instance was unhealthy|instance is unhealthy|unhealthy instance", "An instance was unhealthy."),
            ("machine check|hardware error", "The kernel reported a hardware error.", r"\bmce: |\[hardware error\]"),
        ],
    ),
    *clues(
        FailureClass.GPU_MEMORY,
        Weight.CAUSE,
        [
            (
                "cuda out of memory",
                "A GPU has no memory left: the program asked for {size}.",
                r"CUDA out of memory.{0,5}Tried to allocate (?P<size>[\d.]{1,12} ?[KMGT]i?B)",
            ),
            ("cuda out of memory|cuda error: out of memory|cuda_error_out_of_memory|cudaerrormemoryallocation",),
            ("outofmemoryerror", "", r"(cuda|torch)[\w.]{0,40}OutOfMemoryError"),
            ("out of memory|out_of_memory", "", r"(cuda|cublas|cudnn|nccl|hip|rmm|gpu|vram)\b.{0,120}out.of.memory"),
            ("bad_alloc", "", r"(cuda|rmm|device).{0,200}bad_alloc|bad_alloc.{0,80}cuda"),
            ("alloc_failed", "", r"CU(BLAS|DNN|SOLVER|FFT|RAND)_STATUS_ALLOC_FAILED"),
            (
                "cublas handle|cudnn handle|curand handle",
                "",
                r"create (cublas|cudnn|curand) handle|could not create cudnn",
            ),
            (
                "oom when allocating tensor",
                "",
                r"OOM when allocating tensor(?!.{0,300}(allocator \w{0,5}cpu|device:cpu))",
            ),
            (
                "resource_exhausted|resource exhausted",
                "",
                r"resource.exhausted: (out\b|failed to allocate|attempting to)",
            ),
            ("nrt_resource|nrt_tensor_allocate", "The memory of an accelerator is used up."),
            ("gpu memory", "", r"(no|not enough|insufficient|out of) (free |available )?gpu memory"),
        ],
    ),
    *clues(
        FailureClass.MEMORY,
        Weight.CAUSE,
        [
            (
                "no space left on device",
                "The shared memory (/dev/shm) is full.",
                r"(/dev/shm|</torch_).{0,200}no space left",
            ),
        ],
    ),
    *clues(
        FailureClass.DISK_FULL,
        Weight.CAUSE,
        [
            (
                "no space left on device",
                "A disk is full: no space left for {file}.",
                rf"{_NOT_SHARED_MEMORY}.{{0,999}}No space left on device:? ['\"](?P<file>[^'\"]{{1,200}})",
            ),
            ("no space left|errno 28|enospc|disk quota exceeded|disk is full|disk full", "", _NOT_SHARED_MEMORY),
            ("diskpressure|low on resource: ephemeral|ephemeral local storage usage exceeds",),
            ("disk space", "", r"(not enough|insufficient|out of|no) (free |available )?disk space"),
        ],
    ),
    *clues(
        FailureClass.DISK_FULL,
        Weight.LIKELY,
        [
            (
                "pytorchstreamwriter failed|file write failed",
                "Writing a checkpoint failed, probably because a disk is full.",
            ),
            (
                "write error",
                "Writing a file failed, probably because a disk is full.",
                r"write error: wrote \d{1,20} blocks",
            ),
        ],
    ),
    *clues(
        FailureClass.USER_ERROR,
        Weight.CAUSE,
        [
            (
                "executable file not found",
                "The image has no program {name}.",
                r"\"?(?P<name>[\w./-]{1,100})\"?: executable file not found",
            ),
            ("exec format error", "The image is for another processor architecture, or its program has no `#!` line."),
            ("exec ", "The image's program {name} cannot be started.", r"\bexec (?P<name>[\w./-]{1,100}) failed"),
            ("manifest unknown|pull access denied|cannotpullcontainer|imagepull", "The image cannot be pulled."),
            ("oci runtime", "The container cannot be started.", r"OCI runtime (create|exec) failed"),
            ("cannotstartcontainer", "The container cannot be started."),
            ("ncclinvalidusage|duplicate gpu detected", "The program uses NCCL in a wrong way."),
            ("smddp does not support", "The program uses SageMaker's data parallel library in a wrong way."),
            ("peer mapping resources exhausted", "The program uses too many GPUs in one process."),
        ],
    ),
    *clues(
        FailureClass.ACCESS_DENIED,
        Weight.CAUSE,
        [
            (
                "gatedrepo|gated repo|is restricted",
                "The token has no access to {name}.",
                r"access to (?P<name>(model |dataset )?[\w./-]{3,100}) is restricted",
            ),
            (
                "gatedrepo|access gated repo|access a gated repo",
                "The token has no access to a gated repository of Hugging Face.",
            ),
            (
                "not authorized to perform",
                "The role is not allowed to call {action}.",
                r"not authorized to perform:? (?P<action>[\w:*-]{3,100})",
            ),
            (
                "accessdenied|access denied",
                "Access to {address} was denied.",
                r"(?P<address>s3://[^\s'\"()]{1,300}).{0,40}Access ?Denied",
            ),
            ("accessdenied|access denied|accessforbidden",),
            ("403", "Access was denied (403).", r"\b403\b.{0,80}forbidden|forbidden.{0,40}\b403\b|403 client error"),
            (
                "expiredtoken|expired token|token included in the request is expired|requestexpired",
                "The credentials have expired.",
            ),
            (
                "invalidaccesskeyid|invalidclienttokenid|signaturedoesnotmatch|unrecognizedclient",
                "The credentials are wrong.",
            ),
            ("unable to locate credentials|nocredentialserror", "The container has no AWS credentials."),
            ("is not subscribed|not subscribed to", "The account has no subscription for this product."),
            ("unable to assume|cannot assume|could not assume|not be assumed", "The role cannot be assumed."),
            ("kms", "The use of a KMS key was denied.", r"kms.{0,100}(denied|not allowed|disabled|not authorized)"),
        ],
    ),
    *clues(
        FailureClass.MISSING_DATA,
        Weight.CAUSE,
        [
            (
                "no s3 objects found",
                "S3 has no objects at {address}.",
                r"No S3 objects found under S3 URL ['\"]?(?P<address>s3://[^\s'\"]{1,300})",
            ),
            (
                "nosuchkey|nosuchbucket|(404",
                "S3 has no {address}.",
                r"object (?P<address>s3://[^\s'\"()]{1,300}) \((NoSuch|404)",
            ),
            ("nosuchkey|specified key does not exist", "An object in S3 does not exist."),
            ("nosuchbucket|specified bucket does not exist", "A bucket in S3 does not exist."),
            (
                "headobject|(404)",
                "An object does not exist (404).",
                r"HeadObject operation: Not Found|occurred \(404\)",
            ),
            (
                "/opt/ml/input/data",
                "The input {file} does not exist.",
                rf"{_NO_SUCH_FILE}.{{0,5}}['\"]?(?P<file>/opt/ml/input/data/[^'\"\s]{{1,200}})",
            ),
            (
                "/opt/ml/input/data",
                "The input {file} has no files.",
                r"no (?:file|data|images?)\w{0,3} (?:was |were )?found (?:in|at|under)(?: path)? "
                r"['\"]?(?P<file>/opt/ml/input[^'\"\s]{0,200})",
            ),
            (
                "valid model identifier",
                "The model {name} does not exist.",
                r"(?P<name>[\w./-]{1,100}) is not a local folder and is not a valid model",
            ),
            (
                "does not appear to have a file",
                "{name} has no file {file}.",
                r"(?P<name>[\w./-]{1,200}) does not appear to have (?:a|any) files? named (?P<file>[\w./-]{1,100})",
            ),
            (
                "repository not found|repositorynotfound|revisionnotfound|entry not found|entrynotfound",
                "A repository or file of Hugging Face does not exist.",
            ),
            ("doesn't exist on the hub|datasetnotfound", "A dataset of Hugging Face does not exist."),
            (
                "can't load ",
                "The model or tokenizer {name} does not exist.",
                r"can't load (?:the )?(?:model|tokenizer|config\w{0,10}|image processor|feature extractor|weights) for "
                r"['\"]?(?P<name>[\w./-]{1,200})",
            ),
            (
                "data files|dataset script",
                "A dataset has no files.",
                r"(doesn't contain|couldn't find|unable to find|no)( any)? (data files?|dataset script)",
            ),
            (
                "s3://",
                "S3 has no object {address}.",
                r"(FileNotFoundError|no such file or directory|does not exist).{0,20}(?P<address>s3://[^\s'\"]{1,300})",
            ),
            ("404", "An address does not exist (404).", r"404 client error|http error 404|\b404 not found"),
        ],
    ),
    *clues(
        FailureClass.ACCESS_DENIED,
        Weight.LIKELY,
        [
            ("401", "A login is missing or wrong (401).", r"\b401\b.{0,40}unauthorized|401 client error"),
            (
                "permission denied",
                "The program has no permission for {file}.",
                r"Permission denied:? ['\"](?P<file>[^'\"]{1,200})",
            ),
            ("permission denied|permissionerror", "A permission for a file is missing."),
        ],
    ),
    *clues(
        FailureClass.MEMORY,
        Weight.CAUSE,
        [
            (
                "dataloader worker",
                "A data loader worker was killed: memory or shared memory (/dev/shm) ran out.",
                r"DataLoader worker .{0,60}(killed by signal: (Killed|Bus)|exited unexpectedly)",
            ),
            (
                "shared memory",
                "The shared memory (/dev/shm) is full.",
                r"(insufficient|out of|not enough) shared memory|shared memory limit",
            ),
            ("cannot allocate memory|can't allocate memory|could not allocate|unable to allocate|errno 12]",),
            ("not enough memory|insufficient memory|system out of memory|exceeded memory|memory limit exceeded",),
            ("memorypressure|low on resource: memory",),
            ("memoryerror", "", r"(^|[^\w])[\w.]{0,40}MemoryError\b"),
            ("oom-kill|oom_kill|oom kill|oomkill|out of memory: kill|oom killer|killed process",),
            ("memory limit", "", r"(exceeded|over|above).{0,60}memory limit"),
            ("bad_alloc",),
            ("instance type with more memory",),
            ("oom when allocating tensor", "", r"allocator \w{0,5}cpu|device:cpu"),
            (
                "killed",
                "The program was killed, most likely because memory ran out.",
                r"^(\S{1,100}: line \d{1,6}:)?\s{0,20}(\d{1,8}\s{1,10})?Killed\b(?! by| sub| proc)",
            ),
            (
                "out of memory",
                "",
                r"^(srun: )?error: .{0,60}Out Of Memory|ran out of (host |system |cpu )?memory|"
                r"ray\.\w{1,20}\.OutOfMemoryError",
            ),
        ],
    ),
    *clues(
        FailureClass.MEMORY,
        Weight.KILLED,
        [
            (
                "sigkill|signal 9|-9|137",
                "A process was killed, most likely because memory ran out.",
                rf"signal 9\b|Signals\.SIGKILL|{_EXIT}(-9|137)\b",
            ),
            (
                "sigbus|bus error|-7|135",
                "A process was ended by SIGBUS: the shared memory (/dev/shm) is probably full.",
                rf"bus error|SIGBUS|{_EXIT}(-7|135)\b",
            ),
        ],
    ),
    *clues(
        FailureClass.QUOTA,
        Weight.LIKELY,
        [
            ("resourcelimitexceeded", "The quota {name} is exceeded.", r"service limit '(?P<name>[^']{1,100})'"),
            ("resourcelimitexceeded|requestlimitexceeded|servicequotaexceeded", "A quota of the account is exceeded."),
            (
                "throttl|rate exceeded|slowdown|too many requests|reduce your request rate",
                "A service was called too often.",
                r"throttl\w{1,10}(exception|error)|throttled|rate exceeded|\(slowdown\)|too many requests|reduce your",
            ),
        ],
    ),
    *clues(
        FailureClass.TIME_LIMIT,
        Weight.LIKELY,
        [("due to time limit|maxruntimeexceeded|maxwaittimeexceeded",)],
    ),
    *clues(
        FailureClass.HARDWARE,
        Weight.LIKELY,
        [("input/output error", "A file system reported an input/output error.", r"Errno 5\]|: Input/output error")],
    ),
    *clues(
        FailureClass.USER_ERROR,
        Weight.LIKELY,
        [
            (
                "no module named",
                "The module {name} is not installed.",
                r"(?:^|NotFoundError: |ImportError: |^\S{1,60}: )No module named ['\"]?(?P<name>[\w.-]{1,100})",
            ),
            (
                "cannot import name",
                "{name} cannot be imported from {origin}.",
                r"import.{0,200}cannot import name ['\"]?(?P<name>\w{1,100})['\"]? "
                r"from ['\"]?(?P<origin>[\w.-]{1,100})",
            ),
            (
                "cannot import name",
                "{name} cannot be imported.",
                r"import.{0,200}cannot import name ['\"]?(?P<name>\w{1,100})",
            ),
            (
                "no such file|can't open file|file not found|no file or directory",
                "The file {file} does not exist.",
                rf"{_NO_SUCH_FILE}.{{0,5}}['\"](?P<file>[^'\"]{{1,200}})",
            ),
            (
                "error: unrecognized arguments",
                "The program does not know the argument {name}.",
                r"error: unrecognized arguments: (?P<name>\S{1,100})",
            ),
            (
                "error: the following arguments are required",
                "The argument {name} is missing.",
                r"arguments are required: (?P<name>.{1,100})",
            ),
            ("error: argument", "An argument is wrong: {name}.", r"error: argument (?P<name>.{1,150})"),
            ("no such option|invalid choice|unexpected keyword argument|must contain the key|missing required",),
            (
                "device-side assert|index out of bounds",
                "An index or a label is out of range in a GPU kernel (device-side assert).",
            ),
            ("assert ", "An assertion of the program failed.", r"^\s{0,20}assert \w"),
            ("assertion `", "An assertion in a GPU kernel failed.", r"Assertion `.{1,200}` failed"),
            ("size mismatch for", "The checkpoint and the model have different shapes."),
            ("shapes cannot be multiplied", "Two tensors have shapes that do not fit."),
            (
                "driver version is insufficient|no kernel image is available",
                "The image's CUDA version does not fit the instance.",
            ),
            ("no cuda gpus are available|no cuda-capable device", "The program found no GPU."),
            ("command not found", "The command {name} does not exist.", r"(?P<name>[\w./-]{1,100}): command not found"),
            (
                "parameter validation failed|(validationexception)|illegal char sub-sequence",
                "A request or an address is wrong.",
            ),
            (
                "hyperparameter",
                "A hyperparameter is missing or wrong.",
                r"required hyperparameter|invalid.{0,20}hyperparameter|hyperparameter.{0,80}(invalid|validation)",
            ),
            (
                "could not find a version that satisfies|no matching distribution found",
                "A package in requirements.txt does not exist.",
            ),
            ("loss is nan|nan loss|loss: nan", "The loss became NaN.", r"loss is nan|nan loss"),
            (
                "neuronx-cc",
                "The compiler for Trainium failed.",
                r"neuronx-cc.{0,900}(terminated|failed|non-zero)|failed.{0,100}neuronx-cc",
            ),
        ],
    ),
    *clues(
        FailureClass.COMMUNICATION,
        Weight.CONSEQUENCE,
        [
            ("collective operation timeout|collective timeout", "A collective operation (NCCL) timed out."),
            ("timeout at nccl work|checktimeout", "A collective operation (NCCL) timed out."),
            ("ncclremoteerror|remote process exited", "A peer was lost (ncclRemoteError)."),
            ("ncclsystemerror", "A network call of NCCL failed (ncclSystemError)."),
            ("ncclinternalerror|ncclunhandledcudaerror|nccl error", "NCCL failed."),
            (
                "nccl",
                "NCCL failed.",
                r"NCCL (error|operations have failed|watchdog|timeout)|NCCL.{0,100}(timed.out|abort)|ncclCommWatchdog",
            ),
            (
                "nccl warn",
                "NCCL reported an error.",
                r"NCCL WARN .{0,200}(fail|closed|error|timed? ?out|refused|reset|lost|abort)",
            ),
            (
                "failure detected by watchdog|detected by watchdog|watchdog thread terminated",
                "A collective operation (NCCL) failed.",
            ),
            ("taking the entire process down", "A collective operation (NCCL) failed."),
            (
                "net/ib|ibv_",
                "The network between instances (InfiniBand) failed.",
                r"NET/IB.{0,40}(completion|async event|error)|ibv_\w{1,40} failed",
            ),
            (
                "net/ofi|libfabric|efa",
                "The network between instances (EFA) failed.",
                r"NET/OFI.{0,200}(error|fail)|libfabric.{0,100}(error|fail)|\bEFA\b.{0,80}(error|fail|tim|unreachable)",
            ),
            (
                "communicator and retr",
                "The ranks did not find each other.",
                r"NCCL communicator and retr\w{1,9} ncclUniqueId",
            ),
            ("distnetworkerror|diststoreerror|distbackenderror", "The connection between the ranks failed."),
            (
                "rendezvous",
                "The ranks did not find each other.",
                r"Rendezvous(Connection|Timeout|Closed|State)Error|rendezvous.{0,40}tim(ed|e)[ -]?out",
            ),
            (
                "c10d|gloo|tcpstore",
                "The connection between the ranks failed.",
                r"(c10d|gloo|TCPStore).{0,200}(timed.out|failed|refused|reset|closed|timeout)",
            ),
            (
                "horovod has been shut down|unable to reach each other|lost communication with",
                "The connection between the ranks failed.",
            ),
            (
                "connection closed by|connection reset|connection refused|connection aborted|broken pipe",
                "A connection was lost.",
            ),
            (
                "socket timeout|connect timeout|read timeout|connection timed out|readtimeout|connecttimeout",
                "A connection timed out.",
            ),
            (
                "timed out",
                "A connection timed out.",
                r"(connect|recv|send|read|barrier|socket|store|operation|client)\w{0,8}\W.{0,80}timed out|"
                r"timed out (after|waiting)",
            ),
            (
                "store based barrier|heartbeat monitor timed out|socket closed|deadline exceeded|deadline_exceeded",
                "A peer was lost.",
            ),
            (
                "failed to connect to all addresses|unavailable: |peer closed|lost connection|connection lost",
                "The connection to a peer was lost.",
            ),
            (
                "incompleteread|premature end|response ended prematurely|unexpected end of data @",
                "A transfer of data broke off.",
            ),
            ("timeouterror", "An operation timed out.", r"(^|[\w.])TimeoutError\b"),
            (
                "heartbeat timeout|failed to send a keep-alive|node has crashed|missed too many heartbeats",
                "A peer was lost.",
            ),
            (
                "max retries exceeded|couldn't connect to|could not connect to|failed to establish a new connection",
                "A service did not answer.",
            ),
            (
                "name resolution|failed to resolve|getaddrinfo|name or service not known|nameresolutionerror",
                "The name of a host could not be resolved.",
            ),
            (
                "network is unreachable|no route to host|transport endpoint|stale file handle|endpointconnectionerror",
                "A network connection failed.",
            ),
            (
                "connectionerror|connectionreseterror|protocolerror|chunkedencodingerror|sslerror|remotedisconnected",
                "A connection failed.",
            ),
            (
                "server error",
                "A service failed.",
                r"\b50[0234] server error|internal server error|bad gateway|service unavailable",
            ),
        ],
    ),
    *clues(
        FailureClass.STOPPED,
        Weight.CONSEQUENCE,
        [
            ("death signal", "The program received a signal to stop.", r"Received \d{1,2} death signal"),
            (
                "got signal:",
                "The program received signal {number}.",
                r"Process \d{1,9} got signal: (?P<number>\d{1,2})\b",
            ),
            ("keyboardinterrupt", "The program was interrupted."),
            ("sigterm", "The program received a signal to stop.", r"(received|caught|got) (signal )?(15|SIGTERM)"),
        ],
    ),
    *clues(
        FailureClass.UNKNOWN,
        Weight.CONSEQUENCE,
        [
            (
                "illegal memory access|cudaerrorillegaladdress|cuda_error_illegal_address",
                "A GPU kernel used a wrong address. The cause may be the program, a library or the GPU.",
            ),
            (
                "unspecified launch failure|misaligned address",
                "A GPU kernel failed. The cause may be the program, a library or the GPU.",
            ),
            ("segmentation fault|sigsegv", "The program crashed (segmentation fault)."),
            (
                "cuda error:|_status_not_initialized|_status_internal_error",
                "A GPU reported an error. The cause may be the program, a library or the GPU.",
            ),
            ("internal: ", "A library failed.", r"(RuntimeError|InternalError): INTERNAL: "),
            (
                "execution_failed|execution failed",
                "A GPU library failed.",
                r"CU(BLAS|DNN)_STATUS_EXECUTION_FAILED|execution failed",
            ),
        ],
    ),
)
