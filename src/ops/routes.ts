import { type ErrorRequestHandler, type Request, Router } from 'express'
import type pg from 'pg'
import type { Config } from '../config.ts'
import type { Fingerprints } from '../events/fingerprint.ts'
import type { Replayed } from '../events/replay.ts'
import type { RunDeps } from '../events/runs.ts'
import type { Log } from '../log.ts'
import { type ProblemCode, sendProblem } from '../problem.ts'
import type { EnqueueSends } from '../sends/trigger.ts'
import { VERSION } from '../version.ts'
import { bearer, neverCached } from './access.ts'
import { apiRouter } from './api.ts'
import { auditRoutes } from './audit-routes.ts'
import { type Changes, createChanges } from './changes.ts'
import { asConfigured } from './decide-send.ts'
import { decisionRoutes } from './decision-routes.ts'
import { docsRoutes } from './docs-page.ts'
import { eventRoutes } from './event-routes.ts'
import { openApiDocument } from './openapi.ts'
import { createOverview, type Overview } from './overview.ts'
import { peopleRoutes } from './people-routes.ts'
import { reconcileRoutes } from './reconcile-routes.ts'
import { reportRoutes } from './report-routes.ts'
import { reviewRoutes } from './review-routes.ts'
import type { Route } from './route.ts'
import { runRoutes } from './run-routes.ts'
import { searchRoutes } from './search-routes.ts'
import { sendRoutes } from './send-routes.ts'
import { sourceRoutes } from './source-routes.ts'
import { statsRoutes } from './stats-routes.ts'
import { tokenRoutes } from './token-routes.ts'
import { viewRoutes } from './view-routes.ts'

export interface OpsDeps {
  pool: pg.Pool
  /** For what only reads, apart from the rest so that it can't slow an answer to a provider. */
  reads: pg.Pool
  log: Log
  replay(id: string, actor: string, via: string, request?: string): Promise<Replayed>
  runs: RunDeps
  enqueueSends: EnqueueSends
  config(): Config
  fingerprints: Fingerprints
  publicUrl?: string | undefined
  /** As the workers have it, for what is said of those who wait. */
  sendsPerMinute?: number | undefined
  now?: (() => Date) | undefined
  /** The overview, for those who show it; one for the whole process. */
  findOverview?: (() => Promise<Overview>) | undefined
  /** What changes, for those who show it; one for the whole process. */
  changes?: Changes | undefined
  /** Aborted when the process stops: who waits for a send then gets it as it is. */
  stopping?: AbortSignal | undefined
}

/** The overview of these, and who tells when it changes. */
function overviewOf({ reads, config, sendsPerMinute, log, changes, findOverview }: OpsDeps) {
  const find = findOverview ?? createOverview(reads, () => ({ config: config(), sendsPerMinute }))
  return { findOverview: find, changes: changes ?? createChanges({ reads, findOverview: find, log }) }
}

/** Every route under /v1, as it is declared. */
export function apiRoutes(given: OpsDeps): Route[] {
  const { config, fingerprints, publicUrl, now = () => new Date() } = given
  const deps = asConfigured({ ...given, now })
  return [
    ...sendRoutes(deps),
    ...decisionRoutes(deps),
    ...eventRoutes(deps),
    ...runRoutes(deps.runs, deps),
    ...reviewRoutes(deps),
    ...reportRoutes(deps),
    ...reconcileRoutes(deps),
    ...statsRoutes({ ...deps, ...overviewOf(deps) }),
    ...tokenRoutes(deps),
    ...peopleRoutes(deps),
    ...viewRoutes(deps),
    ...auditRoutes(deps),
    ...searchRoutes(deps),
    ...sourceRoutes({ ...deps, setup: () => ({ config: config(), fingerprints, publicUrl, now: now() }) }),
  ]
}

/** The JSON API under /v1. Whatever no route here takes ends as 404, so other routes of /v1 stand before it. */
export function opsRoutes(deps: OpsDeps): Router {
  const routes = apiRoutes(deps)
  return Router({ caseSensitive: true, strict: true })
    .use(docsRoutes(openApiDocument(routes, { version: VERSION, publicUrl: deps.publicUrl })))
    .use('/v1', neverCached, bearer(deps.pool))
    .use(apiRouter(routes, deps))
    .use('/v1', (_req, res) => sendProblem(res, 404, 'not_found'))
    .use(onBadRequest)
}

/** What the body parser finds wrong, by its own types; the texts of its errors hold parts of the body. */
const bodyProblems: Record<string, [number, ProblemCode, string?]> = {
  levels: [400, 'invalid_request', 'the body is nested too deeply'],
  values: [400, 'invalid_request', 'the body has more than 5,000 values'],
  not_utf8: [400, 'invalid_json', 'the body is not in UTF-8'],
  'entity.too.large': [413, 'body_too_large'],
  'entity.parse.failed': [400, 'invalid_json'],
  'encoding.unsupported': [415, 'unsupported_encoding'],
  'charset.unsupported': [415, 'unsupported_encoding'],
  'request.size.invalid': [400, 'bad_body'],
  'request.aborted': [400, 'aborted'],
}

const onBadRequest: ErrorRequestHandler = (error: { type?: string; status?: number }, _req: Request, res, next) => {
  if (error instanceof URIError) return sendProblem(res, 400, 'invalid_request', 'the path is not valid percent-encoding')
  const problem = bodyProblems[error.type ?? '']
  if (problem) return sendProblem(res.set('Connection', 'close'), ...problem)
  // Broken compression has a status, but no type of its own.
  if (error.status === 400) return sendProblem(res.set('Connection', 'close'), 400, 'bad_body')
  next(error)
}
