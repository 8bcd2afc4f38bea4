import { z } from 'zod'
import { type EventMeta, type FollowUpEmail, type FollowUpRule, KeyError, type Source } from '../config.ts'
import { maskAddresses } from '../log.ts'
import { dedupeKeySchema } from '../sends/key.ts'
import { messageSchema } from '../sends/message.ts'
import { isPerPeriod } from '../sends/policies.ts'
import type { SendRequest } from '../sends/trigger.ts'

// What the functions of the user's file answer; what they throw is a value here.

/** One email that a rule wants, or why it has none. */
export type Wanted =
  | { rule: string; send: Omit<SendRequest, 'sourceEvent' | 'requestedBy'> }
  | { rule: string; error: string; isFinal: boolean }

/** How long such a function may wait for what it asks: one that hangs holds its worker as long. */
const ANSWER_TIMEOUT_MS = 10_000

/** The payload that the rules are to act on, undefined where the provider doesn't confirm it, or why that can't be told. */
export async function askConfirm(
  { confirm }: Source,
  payload: unknown,
  meta: EventMeta,
): Promise<{ payload: unknown } | { error: string } | undefined> {
  if (!confirm) return { payload }
  try {
    const confirmed = await withinTime('it', () => confirm(payload, meta))
    if (confirmed === null || confirmed === undefined || confirmed === false) return undefined
    // A bare `true` would leave the rules without what they read.
    if (typeof confirmed !== 'object') throw new TypeError('it must return the payload, or nothing')
    return { payload: confirmed }
  } catch (error) {
    return { error: textOf(error) }
  }
}

/** The emails that a rule wants. */
export async function askRule(rule: FollowUpRule, payload: unknown, meta: EventMeta): Promise<Wanted[]> {
  try {
    const emails = (await withinTime('the rule', () => rule.email(payload, meta))) || []
    return [emails].flat().map((email) => readEmail(rule.name, email as FollowUpEmail))
  } catch (error) {
    return [{ rule: rule.name, error: textOf(error), isFinal: error instanceof KeyError }]
  }
}

/** What a function of the user's file answers, unless it takes too long. */
async function withinTime<Answer>(who: string, ask: () => Answer | Promise<Answer>): Promise<Answer> {
  let timer: NodeJS.Timeout | undefined
  try {
    const tooLong = new Promise<never>((_, reject) => {
      timer = setTimeout(
        () => reject(new Error(`${who} gave no answer within ${ANSWER_TIMEOUT_MS / 1_000} s`)),
        ANSWER_TIMEOUT_MS,
      )
    })
    // Called inside a promise, so that one that throws at once has the race to catch it, and the timer its end.
    return await Promise.race([Promise.resolve().then(ask), tooLong])
  } finally {
    clearTimeout(timer)
  }
}

const emailSchema = z
  .strictObject({
    key: dedupeKeySchema,
    policy: z.enum(['claim', 'per_period', 'timestamp', 'prefer_duplicate']).default('claim'),
    message: messageSchema,
  })
  .refine(({ key, policy }) => policy !== 'per_period' || isPerPeriod(key), {
    path: ['key'],
    message: 'policy per_period needs a period as its last part',
  })

function readEmail(rule: string, email: FollowUpEmail): Wanted {
  const { key, policy, ...message } = email ?? {}
  const parsed = emailSchema.safeParse({ key, ...(policy !== undefined && { policy }), message: withoutUndefined(message) })
  if (parsed.success) return { rule, send: parsed.data }
  const problems = parsed.error.issues.map(({ path, message }) =>
    [path.filter((it) => it !== 'message').join('.'), message].filter((it) => it !== '').join(': '),
  )
  return { rule, error: cleanText(`the email is not usable: ${problems.join('; ')}`), isFinal: true }
}

const withoutUndefined = (fields: object) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== null))

/** An error as it is shown with its event. */
export const textOf = (error: unknown) => cleanText(error instanceof Error ? `${error.name}: ${error.message}` : String(error))
// What the user's code throws may name whom it was about, as the email API's refusals do.
const cleanText = (text: string) => maskAddresses(text.replaceAll('\0', '')).slice(0, 500)
