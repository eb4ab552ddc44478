"""What columns can be, table by table, and by which names they are known.

Must not know: files, or what stands in cells.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.sources.options import Table
from tidegate.sources.parse_cells import Cell


class Field(NamedTuple):
    """Something that a column can be."""

    name: str
    cell: Cell
    names: str  # of columns, best first, without capitals, spaces and units


#: What columns can be, table by table.
FIELDS: dict[Table, tuple[Field, ...]] = {
    Table.JOBS: (
        Field("id", Cell.TEXT, "id jobid jobidraw workloadid taskid podid uid uuid jobname job name workload pod"),
        Field(
            "submitted",
            Cell.TIME,
            "submitted submit submittime submittedat submissiontime submission createdat created createtime "
            "creationtime creationtimestamp gmtcreate gmtjobsubmitted queuedat queuetime queuedtime arrival "
            "arrivaltime arrivedat enqueued enqueuedat timestamp time date at",
        ),
        Field(
            "started",
            Cell.TIME,
            "started start starttime startedat begin begintime gmtstart scheduledtime scheduled admittedat "
            "runtimestart launchtime launchedat",
        ),
        Field(
            "ended",
            Cell.TIME,
            "ended end endtime endedat finish finished finishedat finishtime completed completedat "
            "completiontime gmtend deletiontime stop stoptime stoppedat",
        ),
        Field(
            "duration",
            Cell.DURATION,
            "duration runtime elapsed elapsedraw elapsedtime runningtime executiontime exectime walltime "
            "servicetime jobduration runduration wallclock",
        ),
        Field(
            "wait",
            Cell.DURATION,
            "wait waittime waitingtime queuewait queueduration queueingtime queuingtime queuedelay "
            "queueingdelay pendingtime waited",
        ),
        Field(
            "gpus",
            Cell.GPUS,
            "gpus gpu numgpu numgpus ngpu ngpus gpunum gpunumber gpucount gpusrequested requestedgpus reqgpus "
            "reqgpu allocgpus numberofgpus gpucnt gpurequest gpurequests requestgpu requestgpus plangpu "
            "alloctres reqtres tres tresalloc allocgres reqgres gres worldsize",
        ),
        Field(
            "gpus_per_pod",
            Cell.GPUS,
            "gpusperpod gpuperpod gpuspernode gpupernode gpusperworker gpuperworker gpuspertask "
            "gpusperreplica gpusperinstance",
        ),
        Field(
            "pods",
            Cell.COUNT,
            "pods numpods podcount nnodes nodes numnodes nodenum nodecount allocnodes workers numworkers "
            "replicas instances instnum instancenum parallelism gangsize gang numpod worker",
        ),
        Field(
            "queue",
            Cell.TEXT,
            "queue queuename team vc virtualcluster tenant project namespace partition account department "
            "organization org group groupid cluster pool user username owner",
        ),
        Field("kind", Cell.KIND, "kind jobtype type workloadtype tasktype jobkind class category"),
        Field(
            "gpu_model",
            Cell.MODEL,
            "gpumodel gputype gpuname gpuspec gpukind modelname gpuproduct accelerator acceleratortype "
            "alloctres reqtres",
        ),
        Field("priority", Cell.NUMBER, "priority prio jobpriority"),
        Field(
            "outcome",
            Cell.OUTCOME,
            "outcome state status jobstate jobstatus finalstate result phase podphase exitstate",
        ),
        Field("tolerated_wait", Cell.DURATION, "toleratedwait maxwait slowait waittolerance"),
    ),
    Table.REQUESTS: (
        Field(
            "at",
            Cell.TIME,
            "at timestamp time ts arrivaltime arrival arrivedat requesttime createdat gmtcreate starttime "
            "start received receivedat date datetime",
        ),
        Field("window", Cell.DURATION, "window interval bin every step period"),
        Field("count", Cell.NUMBER, "count requests numrequests requestcount"),
        Field("rate", Cell.NUMBER, "rate rps qps rateinrps raterps requestrate requestspersecond"),
        Field("service", Cell.TEXT, "service model modelname modelid deployment endpoint servedmodel app"),
        Field("client", Cell.TEXT, "client clientid user userid tenant team apikey sessionid session groupid"),
        Field(
            "tokens_in",
            Cell.COUNT,
            "tokensin contexttokens inputtokens inputlength prompttokens promptlength requesttokens "
            "numinputtokens numprompttokens promptlen inputlen",
        ),
        Field(
            "tokens_out",
            Cell.COUNT,
            "tokensout generatedtokens outputtokens outputlength completiontokens responsetokens "
            "generationlength numoutputtokens outputlen completionlen",
        ),
        Field(
            "latency",
            Cell.DURATION,
            "latency e2elatency duration elapsed elapsedtime responsetime exectime totaltime endtoendlatency",
        ),
        Field("arrival_cv", Cell.NUMBER, "arrivalcv cviat cv"),
    ),
    Table.USE: (
        Field("at", Cell.TIME, "at timestamp time ts timestampanon sampledat datetime date"),
        Field("every", Cell.DURATION, "every interval step period resolution"),
        Field(
            "allocation",
            Cell.TEXT,
            "allocation pod podname exportedpod container containerip containerid instance job jobid gpuuuid "
            "uuid device host hostname node name",
        ),
        Field(
            "queue",
            Cell.TEXT,
            "queue namespace exportednamespace team tenant project vc virtualcluster account partition user",
        ),
        Field("service", Cell.TEXT, "service model modelname servedmodel deployment app"),
        Field("gpu_model", Cell.MODEL, "gpumodel gputype gpuname gpuspec gpuproduct accelerator"),
        Field("gpus", Cell.GPUS, "gpus numgpu numgpus gpucount gpunum"),
        Field(
            "busy",
            Cell.SHARE,
            "busy busyshare gpuutil gpuutilization gpuutilisation utilization utilisation util dutycycle "
            "gpudutycycle grengineactive smactive utilizationgpu gpuusage",
        ),
        Field(
            "vram",
            Cell.MEMORY,
            "vram vramused gpumemory gpumemoryused gpumemused memoryused memused fbused usedmemory memoryusage gpumem",
        ),
        Field(
            "vram_total",
            Cell.MEMORY,
            "vramtotal gpumemorytotal gpumemtotal memorytotal memtotal fbtotal totalmemory",
        ),
        Field("power", Cell.NUMBER, "power powerdraw powerusage powerw watts"),
    ),
    Table.CAPACITY: (
        Field("at", Cell.TIME, "at timestamp time ts datetime date"),
        Field("every", Cell.DURATION, "every interval step period resolution"),
        Field("queue", Cell.TEXT, "queue vc virtualcluster cluster partition team namespace pool"),
        Field("gpu_model", Cell.MODEL, "gpumodel gputype gpuname gpuspec gpuproduct accelerator"),
        Field("total", Cell.GPUS, "total totalgpunum totalgpu totalgpus gpustotal capacity gpucapacity gpus numgpus"),
        Field(
            "running",
            Cell.GPUS,
            "running runninggpunum runninggpu runninggpus gpusrunning usedgpus gpusused allocatedgpus "
            "gpusallocated allocated",
        ),
        Field("pending", Cell.GPUS, "pending pendinggpunum pendinggpu pendinggpus gpuspending queuedgpus gpusqueued"),
        Field("running_jobs", Cell.COUNT, "runningjobs runningjobnum runninggpujobnum jobsrunning"),
        Field(
            "pending_jobs",
            Cell.COUNT,
            "pendingjobs pendingjobnum pendinggpujobnum jobspending queuesize queuelength",
        ),
    ),
    Table.STARTS: (
        Field("at", Cell.TIME, "at timestamp time ts"),
        Field("stage", Cell.TEXT, "stage phase step"),
        Field("service", Cell.TEXT, "service model modelname pod"),
        Field("took", Cell.DURATION, "took duration latency elapsed"),
    ),
}

#: What must be there for a table to be one: one of each.
NEEDS: dict[Table, tuple[tuple[str, ...], ...]] = {
    Table.JOBS: (("submitted", "started"), ("gpus", "gpus_per_pod"), ("duration", "ended", "started", "outcome")),
    Table.REQUESTS: (("at",), ("count", "rate", "tokens_in", "tokens_out", "latency")),
    Table.USE: (("at",), ("busy", "vram")),
    Table.CAPACITY: (("at",), ("total", "running", "pending", "pending_jobs")),
    Table.STARTS: (("at",), ("stage",), ("took",)),
}
