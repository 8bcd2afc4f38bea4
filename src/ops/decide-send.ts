import type pg from 'pg'
import { z } from 'zod'
import type { Config } from '../config.ts'
import type { Log } from '../log.ts'
import { type Decided, type DecisionRequest, decide } from '../sends/decide.ts'
import { rematch } from '../sends/settle.ts'
import { type EnqueueSends, enqueueFor } from '../sends/trigger.ts'

export interface DecideDeps {
  pool: pg.Pool
  enqueueSends: EnqueueSends
  isExclusive(): boolean
  /** Of the configuration: a resend takes two people. */
  takesTwo(): boolean
  log: Log
}

/** The same as the configuration says it when a decision is made. */
export const asConfigured = <Deps extends { config(): Config }>(deps: Deps) => ({
  ...deps,
  isExclusive: () => deps.config().account === 'exclusive',
  takesTwo: () => deps.config().secondPerson,
})

/** Read by people, in the audit log, for ever. */
export const reasonSchema = z
  .string()
  .max(1_000)
  .refine((text) => text.isWellFormed(), 'must be text')
  .transform((text) => text.replace(/\p{Cc}+/gu, ' ').trim())
  .pipe(z.string().min(1, 'must say why'))
  .meta({ description: 'Why, for the audit', override: { minLength: 1, pattern: '[^\\s\\u0000-\\u001f\\u007f-\\u009f]' } })

export const messageIdSchema = z
  .string()
  .min(1)
  .max(500)
  .refine((text) => text.isWellFormed() && !/\p{Cc}/u.test(text), 'must be text without control characters')
  .meta({ description: "Inboxili's ID of the email", override: { pattern: '^[^\\u0000-\\u001f\\u007f-\\u009f]*$' } })

/** For a program, and for whoever would be both. */
export const SECOND_PERSON =
  'a resend waits for two people, on the page or at the command line: one asks for it, another says so too'

/** Carries out a person's decision, however it was asked for: once, logged, and with the events that waited for it matched again. */
export async function decideSend(
  { pool, enqueueSends, isExclusive, takesTwo, log }: DecideDeps,
  key: string,
  { requestId, ...request }: DecisionRequest & { requestId?: string | undefined },
): Promise<Decided> {
  // PostgreSQL's texts hold no NUL, so no key does.
  const decided: Decided = key.includes('\0')
    ? { outcome: 'not_found' }
    : await decide(pool, enqueueFor(enqueueSends, requestId), key, request, takesTwo())
  log.info({ decision: request.decision, outcome: decided.outcome, by: request.actor, request: requestId }, 'decision')
  // If it fails, the sweep does it.
  if (decided.outcome === 'decided')
    await rematch(pool, decided.matchKey, isExclusive()).catch((error: unknown) => log.warn({ error }, 'matching again failed'))
  return decided
}
