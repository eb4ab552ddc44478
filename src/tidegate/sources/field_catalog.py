"""The fields of the canonical tables, and the column names that they are recognised by."""

from __future__ import annotations

import re
from typing import NamedTuple

from tidegate.sources.options import CanonicalTable
from tidegate.sources.parse_cells import CellKind


class ColumnField(NamedTuple):
    """Something that a column can be."""

    name: str
    cell: CellKind
    names: str  # of columns, best first, without capitals, spaces and units


def _fields(text: str) -> tuple[ColumnField, ...]:
    """Fields from lines such as `submitted time: submitted submittime …`, which indented lines continue."""
    entries = (entry.partition(":") for entry in re.split(r"\n(?=\S)", text.strip()))
    named = ((head.split(), " ".join(names.split())) for head, _, names in entries)
    return tuple(ColumnField(name, CellKind(cell), names) for (name, cell), names in named)


#: What columns can be, table by table: the field, the kind of its cells, and names of columns, best first.
FIELDS: dict[CanonicalTable, tuple[ColumnField, ...]] = {
    CanonicalTable.JOBS: _fields("""
id text: id jobid jobidraw workloadid taskid podid uid uuid jobname job name workload pod
submitted time: submitted submit submittime submittedat submissiontime submission createdat created createtime
    creationtime creationtimestamp gmtcreate gmtjobsubmitted queuedat queuetime queuedtime arrival arrivaltime
    arrivedat enqueued enqueuedat timestamp time date at
started time: started start starttime startedat begin begintime gmtstart scheduledtime scheduled admittedat
    runtimestart launchtime launchedat
ended time: ended end endtime endedat finish finished finishedat finishtime completed completedat completiontime
    gmtend deletiontime stop stoptime stoppedat
duration duration: duration runtime elapsed elapsedraw elapsedtime runningtime executiontime exectime walltime
    servicetime jobduration runduration wallclock
wait duration: wait waittime waitingtime queuewait queueduration queueingtime queuingtime queuedelay queueingdelay
    pendingtime waited
gpus gpus: gpus gpu numgpu numgpus ngpu ngpus gpunum gpunumber gpucount gpusrequested requestedgpus reqgpus reqgpu
    allocgpus numberofgpus gpucnt gpurequest gpurequests requestgpu requestgpus plangpu alloctres reqtres tres
    tresalloc allocgres reqgres gres worldsize
gpus_per_pod gpus: gpusperpod gpuperpod gpuspernode gpupernode gpusperworker gpuperworker gpuspertask gpusperreplica
    gpusperinstance
pods count: pods numpods podcount nnodes nodes numnodes nodenum nodecount allocnodes workers numworkers replicas
    instances instnum instancenum parallelism gangsize gang numpod worker
queue text: queue queuename team vc virtualcluster tenant project namespace partition account department organization
    org group groupid cluster pool user username owner
kind kind: kind jobtype type workloadtype tasktype jobkind class category
gpu_model model: gpumodel gputype gpuname gpuspec gpukind modelname gpuproduct accelerator acceleratortype alloctres
    reqtres
priority number: priority prio jobpriority
outcome outcome: outcome state status jobstate jobstatus finalstate result phase podphase exitstate
tolerated_wait duration: toleratedwait maxwait slowait waittolerance
"""),
    CanonicalTable.REQUESTS: _fields("""
at time: at timestamp time ts arrivaltime arrival arrivedat requesttime createdat gmtcreate starttime start received
    receivedat date datetime
window duration: window interval bin every step period
count number: count requests numrequests requestcount
rate number: rate rps qps rateinrps raterps requestrate requestspersecond
service text: service model modelname modelid deployment endpoint servedmodel app
client text: client clientid user userid tenant team apikey sessionid session groupid
tokens_in count: tokensin contexttokens inputtokens inputlength prompttokens promptlength requesttokens numinputtokens
    numprompttokens promptlen inputlen
tokens_out count: tokensout generatedtokens outputtokens outputlength completiontokens responsetokens generationlength
    numoutputtokens outputlen completionlen
latency duration: latency e2elatency duration elapsed elapsedtime responsetime exectime totaltime endtoendlatency
arrival_cv number: arrivalcv cviat cv
"""),
    CanonicalTable.USE: _fields("""
at time: at timestamp time ts timestampanon sampledat datetime date
every duration: every interval step period resolution
allocation text: allocation pod podname exportedpod container containerip containerid instance job jobid gpuuuid uuid
    device host hostname node name
queue text: queue namespace exportednamespace team tenant project vc virtualcluster account partition user
service text: service model modelname servedmodel deployment app
gpu_model model: gpumodel gputype gpuname gpuspec gpuproduct accelerator
gpus gpus: gpus numgpu numgpus gpucount gpunum
busy share: busy busyshare gpuutil gpuutilization gpuutilisation utilization utilisation util dutycycle gpudutycycle
    grengineactive smactive utilizationgpu gpuusage
vram memory: vram vramused gpumemory gpumemoryused gpumemused memoryused memused fbused usedmemory memoryusage gpumem
vram_total memory: vramtotal gpumemorytotal gpumemtotal memorytotal memtotal fbtotal totalmemory
power number: power powerdraw powerusage powerw watts
"""),
    CanonicalTable.CAPACITY: _fields("""
at time: at timestamp time ts datetime date
every duration: every interval step period resolution
queue text: queue vc virtualcluster cluster partition team namespace pool
gpu_model model: gpumodel gputype gpuname gpuspec gpuproduct accelerator
total gpus: total totalgpunum totalgpu totalgpus gpustotal capacity gpucapacity gpus numgpus
running gpus: running runninggpunum runninggpu runninggpus gpusrunning usedgpus gpusused allocatedgpus gpusallocated
    allocated
pending gpus: pending pendinggpunum pendinggpu pendinggpus gpuspending queuedgpus gpusqueued
running_jobs count: runningjobs runningjobnum runninggpujobnum jobsrunning
pending_jobs count: pendingjobs pendingjobnum pendinggpujobnum jobspending queuesize queuelength
"""),
    CanonicalTable.STARTS: _fields("""
at time: at timestamp time ts
stage text: stage phase step
service text: service model modelname pod
took duration: took duration latency elapsed
"""),
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
