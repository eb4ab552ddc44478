"""What columns can be, table by table, and by which names they are known."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.sources.options import CanonicalTable
from tidegate.sources.parse_cells import CellKind


class ColumnField(NamedTuple):
    """Something that a column can be."""

    name: str
    cell: CellKind
    names: str  # of columns, best first, without capitals, spaces and units


#: What columns can be, table by table.
FIELDS: dict[CanonicalTable, tuple[ColumnField, ...]] = {
    CanonicalTable.JOBS: (
        ColumnField(
            "id", CellKind.TEXT, "id jobid jobidraw workloadid taskid podid uid uuid jobname job name workload pod"
        ),
        ColumnField(
            "submitted",
            CellKind.TIME,
            "submitted submit submittime submittedat submissiontime submission createdat created createtime "
            "creationtime creationtimestamp gmtcreate gmtjobsubmitted queuedat queuetime queuedtime arrival "
            "arrivaltime arrivedat enqueued enqueuedat timestamp time date at",
        ),
        ColumnField(
            "started",
            CellKind.TIME,
            "started start starttime startedat begin begintime gmtstart scheduledtime scheduled admittedat "
            "runtimestart launchtime launchedat",
        ),
        ColumnField(
            "ended",
            CellKind.TIME,
            "ended end endtime endedat finish finished finishedat finishtime completed completedat "
            "completiontime gmtend deletiontime stop stoptime stoppedat",
        ),
        ColumnField(
            "duration",
            CellKind.DURATION,
            "duration runtime elapsed elapsedraw elapsedtime runningtime executiontime exectime walltime "
            "servicetime jobduration runduration wallclock",
        ),
        ColumnField(
            "wait",
            CellKind.DURATION,
            "wait waittime waitingtime queuewait queueduration queueingtime queuingtime queuedelay "
            "queueingdelay pendingtime waited",
        ),
        ColumnField(
            "gpus",
            CellKind.GPUS,
            "gpus gpu numgpu numgpus ngpu ngpus gpunum gpunumber gpucount gpusrequested requestedgpus reqgpus "
            "reqgpu allocgpus numberofgpus gpucnt gpurequest gpurequests requestgpu requestgpus plangpu "
            "alloctres reqtres tres tresalloc allocgres reqgres gres worldsize",
        ),
        ColumnField(
            "gpus_per_pod",
            CellKind.GPUS,
            "gpusperpod gpuperpod gpuspernode gpupernode gpusperworker gpuperworker gpuspertask "
            "gpusperreplica gpusperinstance",
        ),
        ColumnField(
            "pods",
            CellKind.COUNT,
            "pods numpods podcount nnodes nodes numnodes nodenum nodecount allocnodes workers numworkers "
            "replicas instances instnum instancenum parallelism gangsize gang numpod worker",
        ),
        ColumnField(
            "queue",
            CellKind.TEXT,
            "queue queuename team vc virtualcluster tenant project namespace partition account department "
            "organization org group groupid cluster pool user username owner",
        ),
        ColumnField("kind", CellKind.KIND, "kind jobtype type workloadtype tasktype jobkind class category"),
        ColumnField(
            "gpu_model",
            CellKind.MODEL,
            "gpumodel gputype gpuname gpuspec gpukind modelname gpuproduct accelerator acceleratortype "
            "alloctres reqtres",
        ),
        ColumnField("priority", CellKind.NUMBER, "priority prio jobpriority"),
        ColumnField(
            "outcome",
            CellKind.OUTCOME,
            "outcome state status jobstate jobstatus finalstate result phase podphase exitstate",
        ),
        ColumnField("tolerated_wait", CellKind.DURATION, "toleratedwait maxwait slowait waittolerance"),
    ),
    CanonicalTable.REQUESTS: (
        ColumnField(
            "at",
            CellKind.TIME,
            "at timestamp time ts arrivaltime arrival arrivedat requesttime createdat gmtcreate starttime "
            "start received receivedat date datetime",
        ),
        ColumnField("window", CellKind.DURATION, "window interval bin every step period"),
        ColumnField("count", CellKind.NUMBER, "count requests numrequests requestcount"),
        ColumnField("rate", CellKind.NUMBER, "rate rps qps rateinrps raterps requestrate requestspersecond"),
        ColumnField("service", CellKind.TEXT, "service model modelname modelid deployment endpoint servedmodel app"),
        ColumnField(
            "client", CellKind.TEXT, "client clientid user userid tenant team apikey sessionid session groupid"
        ),
        ColumnField(
            "tokens_in",
            CellKind.COUNT,
            "tokensin contexttokens inputtokens inputlength prompttokens promptlength requesttokens "
            "numinputtokens numprompttokens promptlen inputlen",
        ),
        ColumnField(
            "tokens_out",
            CellKind.COUNT,
            "tokensout generatedtokens outputtokens outputlength completiontokens responsetokens "
            "generationlength numoutputtokens outputlen completionlen",
        ),
        ColumnField(
            "latency",
            CellKind.DURATION,
            "latency e2elatency duration elapsed elapsedtime responsetime exectime totaltime endtoendlatency",
        ),
        ColumnField("arrival_cv", CellKind.NUMBER, "arrivalcv cviat cv"),
    ),
    CanonicalTable.USE: (
        ColumnField("at", CellKind.TIME, "at timestamp time ts timestampanon sampledat datetime date"),
        ColumnField("every", CellKind.DURATION, "every interval step period resolution"),
        ColumnField(
            "allocation",
            CellKind.TEXT,
            "allocation pod podname exportedpod container containerip containerid instance job jobid gpuuuid "
            "uuid device host hostname node name",
        ),
        ColumnField(
            "queue",
            CellKind.TEXT,
            "queue namespace exportednamespace team tenant project vc virtualcluster account partition user",
        ),
        ColumnField("service", CellKind.TEXT, "service model modelname servedmodel deployment app"),
        ColumnField("gpu_model", CellKind.MODEL, "gpumodel gputype gpuname gpuspec gpuproduct accelerator"),
        ColumnField("gpus", CellKind.GPUS, "gpus numgpu numgpus gpucount gpunum"),
        ColumnField(
            "busy",
            CellKind.SHARE,
            "busy busyshare gpuutil gpuutilization gpuutilisation utilization utilisation util dutycycle "
            "gpudutycycle grengineactive smactive utilizationgpu gpuusage",
        ),
        ColumnField(
            "vram",
            CellKind.MEMORY,
            "vram vramused gpumemory gpumemoryused gpumemused memoryused memused fbused usedmemory memoryusage gpumem",
        ),
        ColumnField(
            "vram_total",
            CellKind.MEMORY,
            "vramtotal gpumemorytotal gpumemtotal memorytotal memtotal fbtotal totalmemory",
        ),
        ColumnField("power", CellKind.NUMBER, "power powerdraw powerusage powerw watts"),
    ),
    CanonicalTable.CAPACITY: (
        ColumnField("at", CellKind.TIME, "at timestamp time ts datetime date"),
        ColumnField("every", CellKind.DURATION, "every interval step period resolution"),
        ColumnField("queue", CellKind.TEXT, "queue vc virtualcluster cluster partition team namespace pool"),
        ColumnField("gpu_model", CellKind.MODEL, "gpumodel gputype gpuname gpuspec gpuproduct accelerator"),
        ColumnField(
            "total", CellKind.GPUS, "total totalgpunum totalgpu totalgpus gpustotal capacity gpucapacity gpus numgpus"
        ),
        ColumnField(
            "running",
            CellKind.GPUS,
            "running runninggpunum runninggpu runninggpus gpusrunning usedgpus gpusused allocatedgpus "
            "gpusallocated allocated",
        ),
        ColumnField(
            "pending", CellKind.GPUS, "pending pendinggpunum pendinggpu pendinggpus gpuspending queuedgpus gpusqueued"
        ),
        ColumnField("running_jobs", CellKind.COUNT, "runningjobs runningjobnum runninggpujobnum jobsrunning"),
        ColumnField(
            "pending_jobs",
            CellKind.COUNT,
            "pendingjobs pendingjobnum pendinggpujobnum jobspending queuesize queuelength",
        ),
    ),
    CanonicalTable.STARTS: (
        ColumnField("at", CellKind.TIME, "at timestamp time ts"),
        ColumnField("stage", CellKind.TEXT, "stage phase step"),
        ColumnField("service", CellKind.TEXT, "service model modelname pod"),
        ColumnField("took", CellKind.DURATION, "took duration latency elapsed"),
    ),
}

#: What must be there for a table to be one: one of each.
NEEDS: dict[CanonicalTable, tuple[tuple[str, ...], ...]] = {
    CanonicalTable.JOBS: (
        ("submitted", "started"),
        ("gpus", "gpus_per_pod"),
        ("duration", "ended", "started", "outcome"),
    ),
    CanonicalTable.REQUESTS: (("at",), ("count", "rate", "tokens_in", "tokens_out", "latency")),
    CanonicalTable.USE: (("at",), ("busy", "vram")),
    CanonicalTable.CAPACITY: (("at",), ("total", "running", "pending", "pending_jobs")),
    CanonicalTable.STARTS: (("at",), ("stage",), ("took",)),
}
