import type pg from 'pg'
import { z } from 'zod'
import { busyOrThrow, findRun, planRun, type RunDeps, startRun, stopRun } from '../events/runs.ts'
import type { Log } from '../log.ts'
import { cursor, limit, microseconds, replayFilter } from './filters.ts'
import { type Route, refuse, reply, route } from './route.ts'
import { listRunPage } from './run-queries.ts'
import { planSchema, runPageSchema, runSchema } from './run-schemas.ts'

const MAX_BODY_BYTES = 1_500_000
const tag = 'Replays'
const params = z.strictObject({ id: z.uuid().meta({ example: '0b7f7f4e-9e5c-4a43-8a53-3f0a8e6f4e0d' }) })
const missing = 'no run has this id'
const runFilter = z.strictObject({ limit, cursor: cursor(z.tuple([microseconds, z.uuid()])).optional() })

const replayRequest = (now: () => Date) =>
  z
    .union([
      z.strictObject({ filter: replayFilter(now), dry_run: z.boolean() }),
      z.strictObject({ plan: z.uuid().meta({ description: '`plan` of a dry run' }) }),
    ])
    .meta({ id: 'ReplayRequest', example: { filter: { source: 'stripe', since: '24h' }, dry_run: true } })

/** Replays of many events: what one would do, carrying it out, how far it is, and stopping it. */
export function runRoutes(deps: RunDeps, { reads, log, now }: { reads: pg.Pool; log: Log; now: () => Date }): Route[] {
  return [
    route({
      id: 'replayEvents',
      method: 'post',
      path: '/v1/replay',
      tag,
      summary: 'Plan a replay of many events, or carry one out',
      description:
        '`filter` with `dry_run: true` says what would happen and keeps a plan for 15 minutes; `plan` carries it out, once; `filter` with `dry_run: false` does so without a look. Audited.',
      roles: ['operator'],
      body: { schema: replayRequest(now), limit: MAX_BODY_BYTES },
      missing: 'there is no such plan, or it has expired',
      answers: {
        200: { description: 'The plan, with its forecast', schema: planSchema },
        202: { description: 'The run', schema: runSchema },
      },
      problems: { 409: ['already_running', 'not_allowed'] },
      async handle({ body, actor, caller, requestId }) {
        if ('filter' in body && body.dry_run) {
          const run = await planRun(deps, body.filter, true, actor).catch(busyOrThrow)
          return run ? reply(200, { plan: run.id, ...run }) : refuse(409, 'already_running', 'another dry run is under way')
        }
        const plan = 'filter' in body ? (await planRun(deps, body.filter, false, actor)).id : body.plan
        const run = await startRun(deps, plan, actor, 'api')
        if (!run) return undefined
        if (run.state === 'stopped') return refuse(409, 'not_allowed', 'it was stopped')
        log.info({ run: run.id, events: run.events, by: caller.name, request: requestId }, 'replay asked for')
        return reply(202, run)
      },
    }),
    route({
      id: 'listRuns',
      method: 'get',
      path: '/v1/runs',
      tag,
      summary: 'List replays of many events, newest first, plans too',
      description: '`forecast` and `statuses` are told of a single one only.',
      roles: ['reader', 'operator'],
      query: runFilter,
      answers: { 200: { description: 'One page', schema: runPageSchema } },
      handle: async ({ query }) => reply(200, await listRunPage(reads, query)),
    }),
    route({
      id: 'findRun',
      method: 'get',
      path: '/v1/runs/:id',
      tag,
      summary: 'How far a replay of many events is',
      roles: ['reader', 'operator'],
      params,
      missing,
      answers: { 200: { description: 'The run', schema: runSchema } },
      async handle({ params: { id } }) {
        const run = await findRun(reads, id)
        return run && reply(200, run)
      },
    }),
    route({
      id: 'stopRun',
      method: 'post',
      path: '/v1/runs/:id/stop',
      tag,
      summary: 'Add nothing more to a replay, or drop a plan',
      description: 'What waits to be processed by now is processed. Audited.',
      roles: ['operator'],
      params,
      missing,
      answers: { 200: { description: 'The run', schema: runSchema } },
      problems: { 409: ['not_allowed'] },
      async handle({ params: { id }, actor }) {
        const run = await stopRun(deps.pool, id, actor, 'api')
        if (!run) return undefined
        return run.state === 'stopped' ? reply(200, run) : refuse(409, 'not_allowed', 'it has ended already')
      },
    }),
  ]
}
