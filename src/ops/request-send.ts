import { setTimeout as pause } from 'node:timers/promises'
import type pg from 'pg'
import { z } from 'zod'
import { inTransaction } from '../db.ts'
import { dedupeKeySchema } from '../sends/key.ts'
import type { State, Status } from '../sends/lifecycle.ts'
import { messageSchema } from '../sends/message.ts'
import { isPerPeriod, policies, UNGUARDED_WITHIN_MINUTES } from '../sends/policies.ts'
import { type EnqueueSends, triggerSend } from '../sends/trigger.ts'
import { findSend, findState, type Send } from './send-queries.ts'

const MAX_WAIT_SECONDS = 30
const MOST_WAITING = 200
const POLL_EVERY_MS = 200

/** What `POST /v1/sends` takes. */
export const sendRequestSchema = z
  .strictObject({
    dedupe_key: dedupeKeySchema,
    policy: z.enum(policies).default('claim').meta({
      description:
        'How strict it is. Under `per_period` the last part of the key must be a period (`2026-11`, `2026-W48`, `2026-11-29`); under `unguarded` the key has at most 475 characters',
    }),
    message: messageSchema,
  })
  .refine(({ dedupe_key, policy }) => policy !== 'per_period' || isPerPeriod(dedupe_key), {
    path: ['dedupe_key'],
    message: 'policy per_period needs a period as its last part',
  })
  .refine(({ dedupe_key, policy }) => policy !== 'unguarded' || dedupe_key.length <= 475, {
    path: ['dedupe_key'],
    message: 'policy unguarded adds a part to the key: at most 475 characters',
  })
  .meta({
    id: 'SendRequest',
    example: {
      dedupe_key: 'welcome:user_2',
      message: { to: 'bea@example.com', from_email: 'hello@example.com', subject: 'Welcome', html_body: '<p>Hello</p>' },
    },
  })
export type SendBody = z.output<typeof sendRequestSchema>

export type Requested =
  /** Queued now, or held before by a send of the same message. */
  | { outcome: 'queued' | 'held'; send: Send }
  /** The key stands for another message. */
  | { outcome: 'conflict'; status: Status; fields: string[] }
  /** Policy `unguarded`: this recipient has had as many of this kind as may be. */
  | { outcome: 'rate_limited'; retryAfterSeconds: number }

/** Queues the send, or finds the one that holds its key; the same request twice is one send. */
export async function requestSend(
  pool: pg.Pool,
  enqueue: EnqueueSends,
  body: SendBody,
  { requestedBy, sendsPerMinute }: { requestedBy: string; sendsPerMinute?: number | undefined },
): Promise<Requested> {
  const { dedupe_key: key, policy, message } = body
  const triggered = await inTransaction(pool, (tx) =>
    triggerSend(tx, enqueue, { key, policy, message, sourceEvent: undefined, requestedBy }),
  )
  if (triggered.outcome === 'held' && triggered.differs.length > 0) {
    return { outcome: 'conflict', status: triggered.status, fields: triggered.differs }
  }
  // The earliest of them may be from a moment ago.
  if (triggered.outcome === 'rate_limited') return { ...triggered, retryAfterSeconds: UNGUARDED_WITHIN_MINUTES * 60 }
  return { outcome: triggered.outcome, send: await sendOf(pool, triggered.key, sendsPerMinute) }
}

async function sendOf(pool: pg.Pool, key: string, sendsPerMinute?: number): Promise<Send> {
  const send = await findSend(pool, key, sendsPerMinute)
  if (!send) throw new Error('a send that was committed has vanished: rows of email_sends must never be deleted')
  return send
}

const underWay: readonly State[] = ['queued', 'claimed', 'sending']

/** Whether a send may still change by itself. */
export const isUnderWay = ({ state }: { state: State }): boolean => underWay.includes(state)

/** The seconds that `Prefer: wait=N` asks for, at most 30; 0 without it, and for what can't be read, which RFC 7240 has ignored. */
export function waitSeconds(prefer: string | undefined): number {
  const [, seconds] = /(?:^|[,;\s])wait\s*=\s*"?(\d{1,9})"?\s*(?:$|[,;])/i.exec(prefer ?? '') ?? []
  return Math.min(Number(seconds ?? 0), MAX_WAIT_SECONDS)
}

/** Waits for sends to be under way no longer. No connection is held between two looks, and the number of those who wait is bounded. */
export function createWaitingRoom(pool: pg.Pool, sendsPerMinute?: number) {
  let waiting = 0
  return {
    /** Resolves with the send as it is in the end; at once when too many wait already. An abort ends the wait. */
    async wait(send: Send, seconds: number, signal: AbortSignal): Promise<Send> {
      if (seconds === 0 || !isUnderWay(send) || waiting >= MOST_WAITING) return send
      const end = performance.now() + seconds * 1_000
      waiting += 1
      try {
        let state: State | undefined = send.state
        while (state && underWay.includes(state) && performance.now() < end && !signal.aborted) {
          const left = Math.max(end - performance.now(), 0)
          await pause(Math.min(POLL_EVERY_MS, left), undefined, { signal }).catch(() => undefined)
          if (!signal.aborted) state = await findState(pool, send.dedupe_key)
        }
      } finally {
        waiting -= 1
      }
      return signal.aborted ? send : sendOf(pool, send.dedupe_key, sendsPerMinute)
    },
  }
}
