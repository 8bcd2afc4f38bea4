import express, { Router } from 'express'
import { z } from 'zod'
import { findRun, planRun, type RunDeps, startRun, stopRun } from '../events/runs.ts'
import type { Log } from '../log.ts'
import { sendProblem } from '../problem.ts'
import { callerOf, checked, methodNotAllowed, only } from './access.ts'
import { replayFilter } from './filters.ts'

const MAX_BODY_BYTES = 1_500_000

const replayRequest = (now: () => Date) =>
  z
    .strictObject({ plan: z.uuid().optional(), filter: replayFilter(now).optional(), dry_run: z.boolean().optional() })
    .refine(
      ({ plan, filter, dry_run }) => (plan === undefined ? filter && dry_run !== undefined : !filter && dry_run === undefined),
      'give either plan, or filter with dry_run',
    )

/** Replays of many events: what one would do, carrying it out, how far it is, and stopping it. */
export function runRoutes(deps: RunDeps, { log, now }: { log: Log; now: () => Date }): Router {
  const router = Router({ caseSensitive: true, strict: true })
  // A forecast runs the rules in this process, so one at a time.
  let isForecasting = false

  router
    .route('/v1/replay')
    .post(only('operator'), express.json({ limit: MAX_BODY_BYTES }), async (req, res) => {
      const body = checked(res, replayRequest(now), req.body)
      if (!body) return
      const actor = `token:${callerOf(res).name}`
      if (body.filter && body.dry_run === true) {
        if (isForecasting) return void sendProblem(res, 409, 'already_running', 'another dry run is under way')
        isForecasting = true
        const run = await planRun(deps, body.filter, true, actor).finally(() => {
          isForecasting = false
        })
        return void res.json({ plan: run.id, ...run })
      }
      const plan = body.filter ? (await planRun(deps, body.filter, false, actor)).id : (body.plan ?? '')
      const run = await startRun(deps, plan, actor, 'api')
      if (!run) return void sendProblem(res, 404, 'not_found', 'there is no such plan, or it has expired')
      if (run.state === 'stopped') return void sendProblem(res, 409, 'not_allowed', 'it was stopped')
      log.info({ run: run.id, events: run.events, by: actor, request: res.locals.requestId }, 'replay asked for')
      res.status(202).json(run)
    })
    .all(methodNotAllowed('POST'))

  router
    .route('/v1/runs/:id')
    .get(only('reader', 'operator'), async (req, res) => {
      const id = readRunId(req.params.id)
      const run = id && (await findRun(deps.pool, id))
      if (!run) return void sendProblem(res, 404, 'not_found', 'no run has this id')
      res.json(run)
    })
    .all(methodNotAllowed('GET, HEAD'))

  router
    .route('/v1/runs/:id/stop')
    .post(only('operator'), async (req, res) => {
      const id = readRunId(req.params.id)
      const run = id && (await stopRun(deps.pool, id, `token:${callerOf(res).name}`, 'api'))
      if (!run) return void sendProblem(res, 404, 'not_found', 'no run has this id')
      if (run.state !== 'stopped') return void sendProblem(res, 409, 'not_allowed', 'it has ended already')
      res.json(run)
    })
    .all(methodNotAllowed('POST'))

  return router
}

/** A run's ID; undefined when none can have it. */
export function readRunId(value: string | undefined): string | undefined {
  return z.uuid().safeParse(value).data
}
