"""Worker versioning: which build a worker is, and making a new build the current one.

Temporal hands nothing to the workers of a version before somebody makes that version current, so whoever
starts versioned workers does that too:

    Worker(client, …, deployment_config=versioned(WorkerDeploymentVersion("triage", "2026-11-30")))
    await promoted(client, WorkerDeploymentVersion("triage", "2026-11-30"))
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping

from temporalio.api.enums.v1 import WorkerDeploymentVersionStatus
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentResponse,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import WorkerDeploymentConfig

from classifier.errors import ConfigurationError

log = logging.getLogger("classifier")

_PAUSE = 0.2
_NOT_YET = {RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.ABORTED}
"""The server has not seen the version poll every queue, or somebody else changed the deployment meanwhile."""
_NEVER_CURRENT = {
    WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_CREATED,
    WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_INACTIVE,
}


def versioned(version: WorkerDeploymentVersion) -> WorkerDeploymentConfig:
    """A worker of this version; its runs move on to newer versions, since they may wait for days.

    A workflow that says otherwise (`@workflow.defn(versioning_behavior=…)`) has its way.
    """
    return WorkerDeploymentConfig(
        version=version,
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE,
    )


def version_from(environ: Mapping[str, str]) -> WorkerDeploymentVersion | None:
    """The version of `CLASSIFIER_DEPLOYMENT` and `CLASSIFIER_BUILD_ID`, or None.

    Raises:
        ConfigurationError: There is one without the other.
    """
    deployment, build = environ.get("CLASSIFIER_DEPLOYMENT"), environ.get("CLASSIFIER_BUILD_ID")
    if bool(deployment) != bool(build):
        raise ConfigurationError("CLASSIFIER_DEPLOYMENT and CLASSIFIER_BUILD_ID go together; one is missing")
    return WorkerDeploymentVersion(deployment, build) if deployment and build else None


async def promoted(client: Client, version: WorkerDeploymentVersion, *, again: bool = False) -> bool:
    """Makes a version current as soon as its workers poll every queue that the current one polls.

    Args:
        client: A client of the namespace.
        version: The version; its workers are polling, or are about to.
        again: Whether also a version that was replaced before takes over. Without it, a worker of an old
            version that starts again leaves the newer one where it is.

    Returns:
        Whether it is current.

    Raises:
        RPCError: The server refuses for good.
    """
    while True:
        try:
            found = await _described(client, version)
            status = _status(found, version)
            if status == WorkerDeploymentVersionStatus.WORKER_DEPLOYMENT_VERSION_STATUS_CURRENT:
                return True
            if status is not None and not again and status not in _NEVER_CURRENT:
                return False
            if status is not None:
                await _set_current(client, version, found.conflict_token)
                continue
        except RPCError as error:
            if error.status not in _NOT_YET:
                raise
        await asyncio.sleep(_PAUSE)


@contextlib.asynccontextmanager
async def promoting(
    client: Client, version: WorkerDeploymentVersion | None, *, again: bool | None = None
) -> AsyncGenerator[None]:
    """Sees to it in the background, beside a worker of the version, and logs where that does not go.

    Args:
        client: A client of the namespace.
        version: The version; None does nothing.
        again: As for `promoted`; False leaves promoting to somebody else.
    """
    if version is None or again is False:
        yield
        return
    task = asyncio.create_task(_promote(client, version, again=bool(again)))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _promote(client: Client, version: WorkerDeploymentVersion, *, again: bool) -> None:
    name = version.to_canonical_string()
    try:
        if not await promoted(client, version, again=again):
            log.warning("version %s was replaced before, so it is given no new runs", name)
    except RPCError as error:
        log.error(  # noqa: TRY400 - a sentence, not a traceback
            "version %s cannot be made current (%s), so it is given nothing", name, error.status.name
        )


async def _described(client: Client, version: WorkerDeploymentVersion) -> DescribeWorkerDeploymentResponse:
    return await client.workflow_service.describe_worker_deployment(
        DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=version.deployment_name)
    )


def _status(
    found: DescribeWorkerDeploymentResponse, version: WorkerDeploymentVersion
) -> WorkerDeploymentVersionStatus.ValueType | None:
    """None where the server has not heard of the version yet."""
    summaries = found.worker_deployment_info.version_summaries
    return next(
        (each.status for each in summaries if each.deployment_version.build_id == version.build_id), None
    )


async def _set_current(client: Client, version: WorkerDeploymentVersion, token: bytes) -> None:
    await client.workflow_service.set_worker_deployment_current_version(
        SetWorkerDeploymentCurrentVersionRequest(
            namespace=client.namespace,
            deployment_name=version.deployment_name,
            build_id=version.build_id,
            conflict_token=token,
            identity=client.identity,
        )
    )
