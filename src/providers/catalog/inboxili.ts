import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts } from '../provider.ts'
import { readTime } from '../time.ts'

const provider: ProviderFacts = {
  name: 'inboxili',
  documentation: 'https://github.com/inboxili/inboxili-php',
  scheme: {
    signatures: [
      {
        kind: 'hmac',
        header: 'x-inboxili-signature',
        match: /^\s*([0-9a-f]{64})\s*$/gi,
        algorithm: 'sha256',
        encoding: 'hex',
        secret: { form: 'text' },
        anyCase: true,
      },
    ],
    signed: '{body}',
  },
  idIsSigned: true,
  contentIsSigned: true,
  idBasis: 'message_id+type',
  hashWithoutId: true,
  id: (event) => {
    const messageId = text(field(event, 'message_id'))
    const type = text(field(event, 'event'))
    return messageId && type ? `${messageId}:${type}` : undefined
  },
  type: (event) => field(event, 'event'),
  occurredAt: (event) => TIMES.map((name) => field(event, name)).find((value) => readTime(value) !== undefined),
  // A soft bounce and a later hard one share their ID, and repeated opens do.
  otherBodyIsFurtherEvent: true,
}

/** Inboxili's delivery events (inboxili-php 0.1 `src/Webhook.php`; beyond `event` and `message_id` nothing is published). */
export const inboxili = defineProvider({
  name: 'inboxili',
  title: 'Inboxili',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'Enter the address as the webhook for delivery events, and copy the webhook secret. These events settle sends; no rule may name this source.',
    secret: 'The webhook secret, as text.',
    identity:
      '`message_id` + `:` + `event`; an event without a message ID is known by the hash of its body. Another body under the same ID (a soft bounce, then a hard one) is a further event, whose ID ends in its hash.',
    unsigned:
      'Nothing of the event. There is no signed time: only the ID stops a replay, which is harmless, as facts only add up.',
    retries: 'Not published. Any 2xx is taken for success.',
    traps: [
      'Rules for this source never run. Without such a source, sends stay `sent` and never become `delivered` or `bounced`.',
      '`event` counts where it is `delivered`, `bounced` or `complained`, exactly; others are stored and change nothing.',
      'A report finds its send by the exact `message_id` that the API answered. One without it, or whose `message_id` no send has, is kept and joined as soon as the send’s answer is recorded.',
      'Of a bounce a status code (`5.1.1`, `4.2.2`) decides over a label. A soft one leaves the send `sent` or `delivered`; any other makes it `bounced`.',
      'Beyond `event` and `message_id` no field is published. Recipient, time and bounce kind are read when they are there.',
      'Upper-case hex and outer blanks are taken, as the vendor’s client takes them; a `sha256=` prefix is not.',
    ],
  },
  sample: {
    types: {},
    newId: (_hex, uuid) => uuid,
    request: ({ type, id, nowSeconds, email }, sign) => {
      const body = JSON.stringify({
        event: type,
        message_id: id,
        to: email,
        timestamp: nowSeconds,
        ...(type.includes('bounce') && { bounce_type: 'hard', diagnostic: '550 5.1.1 no such mailbox' }),
      })
      return { headers: { 'x-inboxili-signature': sign(body) }, body }
    },
  },
})

/** What a delivery event says about one email; fields that aren't published are read when they are there. */
export interface DeliveryReport {
  kind: string
  messageId?: string
  recipient?: string
  subject?: string
  occurredAt: Date
  /** Whether the event says its time itself; else it is that of its receipt. */
  hasOwnTime: boolean
  bounceKind?: 'hard' | 'soft' | 'unknown'
}

const RECIPIENTS = ['to', 'recipient', 'email']
const TIMES = ['timestamp', 'occurred_at', 'created_at']
const LABELS = ['type', 'bounce_type', 'bounce_kind', 'kind', 'classification', 'category', 'severity', 'event']
const STATUSES = [
  'status',
  'smtp_status',
  'enhanced_status',
  'smtp_code',
  'code',
  'diagnostic',
  'diagnostic_code',
  'smtp_response',
]
const TEXTS = ['response', 'reason', 'error', 'message', 'description']
const LONGEST_ADDRESS = 254
const LONGEST_TEXT = 2000

/** Reads what settles a send from a delivery event; whatever it can't read is absent, and it never throws. */
export function readReport(payload: unknown, receivedAt: Date): DeliveryReport {
  const kind = text(field(payload, 'event')) ?? 'unknown'
  const messageId = text(field(payload, 'message_id'))
  const recipients = RECIPIENTS.flatMap((name) => field(payload, name))
    .filter((value) => text(value)?.includes('@'))
    .map(address)
  // Several, or one that can't be read: then nobody is told apart by it.
  const recipient = new Set(recipients.map((it) => it?.toLowerCase())).size === 1 ? recipients[0] : undefined
  const time = TIMES.map((name) => readTime(field(payload, name))).find((value) => value !== undefined)
  const subject = text(field(payload, 'subject'))?.slice(0, LONGEST_TEXT)
  return {
    kind,
    ...(messageId && { messageId }),
    ...(recipient && { recipient }),
    ...(subject && { subject }),
    occurredAt: time ?? receivedAt,
    hasOwnTime: time !== undefined,
    ...(/bounce/i.test(kind) && { bounceKind: readBounceKind(payload) }),
  }
}

/** An enhanced status code decides over a label (C-62): labels are the sender's guess, codes the mailbox's answer. */
function readBounceKind(payload: unknown): 'hard' | 'soft' | 'unknown' {
  const places = [payload, field(payload, 'bounce'), field(payload, 'data')]
  for (const value of places.flatMap((place) => [...STATUSES, ...TEXTS].map((name) => field(place, name)))) {
    const code = typeof value === 'string' && /(?<![\d.])([45])\.\d{1,3}\.\d{1,3}(?!\.?\d)/.exec(value.slice(0, LONGEST_TEXT))
    if (code) return code[1] === '4' ? 'soft' : 'hard'
  }
  for (const value of places.flatMap((place) => LABELS.map((name) => field(place, name)))) {
    const words =
      typeof value === 'string'
        ? value
            .slice(0, LONGEST_TEXT)
            .toLowerCase()
            .split(/[^a-z]+/)
        : []
    if (words.some((word) => ['soft', 'transient', 'deferred', 'temporary'].includes(word))) return 'soft'
    if (words.some((word) => ['hard', 'permanent'].includes(word))) return 'hard'
  }
  return 'unknown'
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value.trim() !== '' ? value : undefined
}

/** One address, alone or after a name. */
function address(value: unknown): string | undefined {
  const written = text(value)?.trim()
  if (written === undefined || written.length > LONGEST_TEXT) return undefined
  const [, bare = written] = /^[^<>]*<([^<>]*)>$/.exec(written) ?? []
  return bare.length <= LONGEST_ADDRESS && /^[^\s@<>,;]+@[^\s@<>,;]+$/.test(bare) ? bare : undefined
}
