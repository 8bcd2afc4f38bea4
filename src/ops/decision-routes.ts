import express, { type Response, Router } from 'express'
import type pg from 'pg'
import { z } from 'zod'
import { inTransaction } from '../db.ts'
import type { Log } from '../log.ts'
import { sendProblem } from '../problem.ts'
import { type Decided, type DecisionRequest, decide } from '../sends/decide.ts'
import { type Switched, switchMatching, switchSending } from '../sends/hold.ts'
import { rematch } from '../sends/settle.ts'
import type { EnqueueSends } from '../sends/trigger.ts'
import { callerOf, checked, methodNotAllowed, only } from './access.ts'
import { findSend } from './send-queries.ts'
import { findSending } from './sending-queries.ts'

export interface DecisionDeps {
  pool: pg.Pool
  enqueueSends: EnqueueSends
  sendsPerMinute?: number | undefined
  isExclusive(): boolean
  log: Log
}

const version = z.number().int().min(1).max(2_147_483_647)
/** Read by people, in the audit log, for ever. */
export const reasonSchema = z
  .string()
  .max(1_000)
  .refine((text) => text.isWellFormed(), 'must be text')
  .transform((text) => text.replace(/\p{Cc}+/gu, ' ').trim())
  .pipe(z.string().min(1, 'must say why'))
export const messageIdSchema = z
  .string()
  .min(1)
  .max(500)
  .refine((text) => text.isWellFormed() && !/\p{Cc}/u.test(text), 'must be text without control characters')

const resolution = z.discriminatedUnion('decision', [
  z.strictObject({ version, decision: z.literal('sent'), message_id: messageIdSchema.optional(), reason: reasonSchema }),
  z.strictObject({ version, decision: z.enum(['abandoned', 'retry']), reason: reasonSchema }),
])
const reopening = z.strictObject({ version, reason: reasonSchema })
const sendingSwitch = z.strictObject({ version, paused: z.boolean(), reason: reasonSchema })
const matchingSwitch = z.strictObject({ version, mode: z.enum(['auto', 'suggest']), reason: reasonSchema })

/** What people decide: each with the version that they saw, and a reason; whoever comes second gets 409. */
export function decisionRoutes({ pool, enqueueSends, sendsPerMinute, isExclusive, log }: DecisionDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const json = express.json({ limit: 20_000 })

  const answerDecision = async (res: Response, key: string, request: DecisionRequest) => {
    const decided: Decided = key.includes('\0') ? { outcome: 'not_found' } : await decide(pool, enqueueSends, key, request)
    log.info(
      { decision: request.decision, outcome: decided.outcome, by: request.actor, request: res.locals.requestId },
      'decision',
    )
    if (decided.outcome === 'not_found') return sendProblem(res, 404, 'not_found', 'no send has this key')
    if (decided.outcome === 'message_taken')
      return sendProblem(
        res,
        409,
        'message_taken',
        'another call has this message ID, its events name another recipient, or no call of this send can have it',
      )
    if (decided.outcome !== 'decided') {
      const { status: send_status, version } = decided
      const detail =
        decided.outcome === 'stale' ? 'the send has changed since' : `a send that is ${send_status} can't be decided so`
      return sendProblem(res, 409, decided.outcome === 'stale' ? 'stale_version' : 'not_allowed', detail, {
        send_status,
        version,
      })
    }
    // Events that waited for it; if it fails, the sweep does it.
    await rematch(pool, decided.matchKey, isExclusive()).catch((error: unknown) => log.warn({ error }, 'matching again failed'))
    res.json(await findSend(pool, key, sendsPerMinute))
  }

  router
    .route('/v1/sends/:key/resolve')
    .post(only('operator'), json, async (req, res) => {
      const body = checked(res, resolution, req.body)
      if (!body) return
      const { decision, reason, version } = body
      const by = { reason, version, actor: `token:${callerOf(res).name}`, via: 'api' }
      await answerDecision(
        res,
        req.params.key ?? '',
        decision === 'sent' ? { decision, messageId: body.message_id, ...by } : { decision, ...by },
      )
    })
    .all(methodNotAllowed('POST'))

  router
    .route('/v1/sends/:key/reopen')
    .post(only('operator'), json, async (req, res) => {
      const body = checked(res, reopening, req.body)
      if (body)
        await answerDecision(res, req.params.key ?? '', {
          decision: 'reopen',
          ...body,
          actor: `token:${callerOf(res).name}`,
          via: 'api',
        })
    })
    .all(methodNotAllowed('POST'))

  const answerSwitch = async (res: Response, switched: Switched) => {
    if (switched.outcome === 'stale')
      return sendProblem(res, 409, 'stale_version', 'it has changed since', { version: switched.version })
    res.json(await findSending(pool))
  }

  router
    .route('/v1/sending')
    .get(only('reader', 'operator'), async (_req, res) => void res.json(await findSending(pool)))
    .post(only('operator'), json, async (req, res) => {
      const body = checked(res, sendingSwitch, req.body)
      if (!body) return
      const by = { ...body, actor: `token:${callerOf(res).name}`, via: 'api' }
      await answerSwitch(res, await inTransaction(pool, (tx) => switchSending(tx, by)))
    })
    .all(methodNotAllowed('GET, HEAD, POST'))

  router
    .route('/v1/matching')
    .post(only('operator'), json, async (req, res) => {
      const body = checked(res, matchingSwitch, req.body)
      if (!body) return
      const by = { ...body, actor: `token:${callerOf(res).name}`, via: 'api' }
      await answerSwitch(res, await inTransaction(pool, (tx) => switchMatching(tx, by)))
    })
    .all(methodNotAllowed('POST'))

  return router
}
