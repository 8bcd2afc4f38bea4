import { z } from 'zod'
import { verdicts } from '../../sends/suggest.ts'
import { messageIdSchema, reasonSchema } from '../decide-send.ts'
import type { AttachableReport, SendEvidence } from '../evidence.ts'
import { rowIdSchema } from '../filters.ts'
import type { Problem } from './action.ts'
import { actionForm, field } from './components.ts'
import { attribute, type Html, html, type Part } from './html.ts'
import { type DeskPlace, reportText } from './review-desk.ts'
import { mayDecide, type Visit } from './visit.ts'

// The forms of the review desk, and what they send.

/** Reasons that are given often, by what they speak for; each can be added to. */
const presets = {
  sent: ['seen in the sending log', 'the customer has it'],
  not_sent: ['not in the sending log', 'the customer says it never came'],
} as const
const allPresets = [...presets.sent, ...presets.not_sent] as const

const version = z
  .string()
  .regex(/^[1-9]\d{0,8}$/)
  .transform(Number)
/** The reason as a form sends it. */
export const reasonIn = {
  preset: z.enum(['', ...allPresets]).default(''),
  reason: z.string().max(1_000).default(''),
}
/** What every form of the desk says beside its own: the send as it was seen, and where to go on. */
const common = {
  version,
  ...reasonIn,
  suggestion: z.enum(verdicts).optional(),
  next: z.string().max(512).optional(),
}
/** A preset, a text of one's own, or both are the reason; it is read by the rule for all reasons. */
export const withReason = <Given extends { preset: string; reason: string }>(
  given: Given,
  context: z.RefinementCtx,
): Omit<Given, 'preset'> => {
  const { preset, reason, ...rest } = given
  const read = reasonSchema.safeParse([preset, reason.trim()].filter((part) => part !== '').join(': '))
  if (read.success) return { ...rest, reason: read.data } as Omit<Given, 'preset'> // its own fields but the preset
  context.addIssue({ code: 'custom', path: ['reason'], message: read.error.issues[0]?.message ?? 'must say why' })
  return z.NEVER
}

export const decisionForm = z
  .strictObject({ ...common, decision: z.enum(['sent', 'abandoned']), message_id: messageIdSchema.optional() })
  .transform(withReason)
export const attachForm = z
  .strictObject({ ...common, event: rowIdSchema, other_mailbox: z.literal('on').optional() })
  .transform(withReason)
/** What is typed by who knows that it can't be undone. */
const CONFIRMATION = 'send again'
export const resendForm = z
  .strictObject({
    ...common,
    words: z
      .string()
      .refine((text) => text.trim().toLowerCase() === CONFIRMATION, `type “${CONFIRMATION}”, as it can't be undone`),
  })
  .transform(withReason)

/** What was typed before, to be shown again. */
export interface Typed {
  reason?: string | undefined
  preset?: string | undefined
  problems?: readonly Problem[]
}

const decidePath = (key: string): string => `/ops/review/decide/${encodeURIComponent(key)}`
const attachPath = (key: string): string => `/ops/review/attach/${encodeURIComponent(key)}`
const againPath = (key: string): string => `/ops/review/again/${encodeURIComponent(key)}`

/** Where the form leads when it is saved. */
export interface Onward extends DeskPlace {
  next?: string | undefined
}

/** Everything that a person can decide about an open send; for who may not, a line that says so. */
export function decisionForms(evidence: SendEvidence, onward: Onward, visit: Visit, typed: Typed = {}): Part {
  if (!mayDecide(visit)) return html`<p class="muted">Deciding needs role operator.</p>`
  const { dedupe_key: key, candidates } = evidence
  return html`<h3>Decide</h3>
${decisionFold('1', 'It was sent', 'sent', evidence, onward, typed)}
${decisionFold('2', 'Not sent, leave it', 'abandoned', evidence, onward, typed)}
<p><a class="button" data-key="3" href="${againPath(key)}${query(onward)}"><kbd>3</kbd> Send it again…</a></p>
${candidates.slice(0, 6).map((report, index) => attachFold(String(index + 4), report, evidence, onward, typed))}${
  candidates.length > 6 && html`<p>There are more reports: <a href="/ops/review?tab=reports">Unmatched reports</a></p>`
}`
}

const query = ({ suggestion, next }: Onward) => {
  const fields = new URLSearchParams({ ...(suggestion && { suggestion }), ...(next && { next }) })
  return fields.size === 0 ? '' : `?${fields}`
}

/** The hidden fields of a form of the desk. */
function hiddenFields(version: number, { suggestion, next }: Onward): Html {
  return html`<input type="hidden" name="version" value="${version}">${suggestion && html`<input type="hidden" name="suggestion" value="${suggestion}">`}${
    next && html`<input type="hidden" name="next" value="${next}">`
  }`
}

/** The reason: in one's own words, or one that is given often. */
export function reasonFields(
  scope: string,
  { reason = '', preset = '', problems = [] }: Typed,
  speaksFor?: keyof typeof presets,
): Html {
  const often = speaksFor === undefined ? allPresets : presets[speaksFor]
  return html`${field({ name: 'reason', label: 'Reason', value: reason, maxLength: 1_000, problems, scope, hint: 'Required, here or below. Kept in the audit, for ever.' })}
<fieldset class="choices"><legend>Often given</legend>${['', ...often].map(
    (text) =>
      html`<label><input type="radio" name="preset" value="${text}"${attribute('checked', text === preset)}> ${text === '' ? 'only as written above' : text}</label> `,
  )}</fieldset>`
}

function decisionFold(
  number: string,
  label: string,
  decision: 'sent' | 'abandoned',
  evidence: SendEvidence,
  onward: Onward,
  typed: Typed,
): Html {
  return html`<details name="decision" data-key="${number}"><summary><kbd>${number}</kbd> ${label}</summary>${decisionFields(decision, evidence, onward, typed, `${decision}-`)}</details>`
}

/** The form that closes a send as sent, or as not sent; `scope` tells its fields from those of others on the page. */
export function decisionFields(
  decision: 'sent' | 'abandoned',
  { dedupe_key: key, version, suggestion }: SendEvidence,
  onward: Onward,
  typed: Typed,
  scope = '',
): Html {
  const messageId = decision === 'sent' && suggestion?.verdict === 'sent' ? suggestion.message_id : null
  return actionForm({
    action: decidePath(key),
    fields: html`${hiddenFields(version, onward)}<input type="hidden" name="decision" value="${decision}">${reasonFields(scope, typed, decision === 'sent' ? 'sent' : 'not_sent')}${
      messageId !== null &&
      html`<p><label><input type="checkbox" name="message_id" value="${messageId}" checked> Its message is <span class="mono">${messageId}</span>, with all that is reported of it</label></p>`
    }<button class="main">Save and next</button>`,
    byApi: {
      method: 'POST',
      path: `/v1/sends/${encodeURIComponent(key)}/resolve`,
      body: { version, decision, ...(messageId !== null && { message_id: messageId }), reason: '…' },
      cli: [
        ...['sends', 'resolve', key, '--decision', decision, '--version', String(version)],
        ...(messageId === null ? [] : ['--message-id', messageId]),
        ...['--reason', '…'],
      ],
    },
  })
}

function attachFold(number: string, report: AttachableReport, evidence: SendEvidence, onward: Onward, typed: Typed): Html {
  return html`<details name="decision" data-key="${number}"><summary><kbd>${number}</kbd> Attach ${report.message_id ?? 'the report'}</summary>
<p>${reportText(report)}</p>${attachFields(report.event, evidence, onward, typed, { scope: `attach-${report.event}-` })}</details>`
}

/** The form that gives a report to a send. */
export function attachFields(
  event: string,
  { dedupe_key: key, version }: Pick<SendEvidence, 'dedupe_key' | 'version'>,
  onward: Onward,
  typed: Typed,
  { scope = '', isOtherMailbox = false }: { scope?: string; isOtherMailbox?: boolean } = {},
): Html {
  return actionForm({
    action: attachPath(key),
    fields: html`${hiddenFields(version, onward)}<input type="hidden" name="event" value="${event}">${reasonFields(scope, typed, 'sent')}${
      isOtherMailbox &&
      html`<p><label><input type="checkbox" name="other_mailbox"> The report names another address, and is of this send all the same</label></p>`
    }<button class="main">Attach</button>`,
    byApi: {
      method: 'POST',
      path: `/v1/sends/${encodeURIComponent(key)}/attach`,
      body: { version, event, reason: '…', ...(isOtherMailbox && { other_mailbox: true }) },
      cli: ['sends', 'attach', key, '--event', event, ...(isOtherMailbox ? ['--other-mailbox'] : []), '--reason', '…'],
    },
  })
}

/** How far a resend is that takes two people: this person is the first to ask, or the second and has it sent. */
type Turn = 'first' | 'second'

/** The form that sends an email again: its words are typed, as it can't be undone. */
export function resendFields(
  { dedupe_key: key, version }: SendEvidence,
  onward: Onward,
  typed: Typed,
  turn: Turn | undefined,
): Html {
  return actionForm({
    action: againPath(key),
    fields: html`${hiddenFields(version, onward)}${reasonFields('', typed, 'not_sent')}${field({
      name: 'words',
      label: html`Type “${CONFIRMATION}”`,
      required: true,
      problems: typed.problems ?? [],
      maxLength: 50,
      size: 20,
    })}<button class="danger">${turn === 'first' ? 'Ask for it' : 'Send it again'}</button>`,
    byApi:
      turn !== undefined
        ? 'personal'
        : {
            method: 'POST',
            path: `/v1/sends/${encodeURIComponent(key)}/resolve`,
            body: { version, decision: 'retry', reason: '…' },
            cli: [
              'sends',
              'resolve',
              key,
              '--decision',
              'retry',
              '--version',
              String(version),
              '--confirm',
              CONFIRMATION,
              '--reason',
              '…',
            ],
          },
  })
}
