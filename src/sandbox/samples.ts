import { randomUUID } from 'node:crypto'
import { createProvider } from '../providers/registry.ts'
import { sign } from '../providers/signature.ts'
import { stripeObject } from './stripe-objects.ts'

/** One sample to make: of which provider, under which secret, saying what. */
export interface SampleOptions {
  provider: string
  options?: unknown
  secret: string
  type: string
  id?: string
  nowSeconds: number
  email?: string
  livemode?: boolean
}

/** What a provider would post: the headers of a sample and the bytes of its body. */
export interface SampleRequest {
  headers: Record<string, string>
  body: Buffer
}

interface Sample {
  type: string
  id: string
  nowSeconds: number
  email: string
  livemode: boolean
}

type Json = Record<string, unknown>

/** How one provider's samples look: the payload, and the headers around a signature. */
interface Writer {
  payload(sample: Sample, options: Json): Json
  headers(sample: Sample, signature: string, options: Json): Record<string, string>
}

/** A made-up event of the given type, signed as its provider would sign it; throws for a secret that can't sign. */
export function sampleRequest(request: SampleOptions): SampleRequest {
  const { provider: name, secret, type, nowSeconds, email = 'ada@example.com', livemode = true } = request
  const { scheme } = createProvider(name, request.options)
  const options = (request.options ?? {}) as Json // checked by createProvider
  const writer = writers[name] ?? fail(`there are no samples of provider "${name}"`)
  const sample: Sample = { type, nowSeconds, email, livemode, id: request.id ?? newId(name) }
  const body = Buffer.from(JSON.stringify(writer.payload(sample, options), undefined, name === 'stripe' ? 2 : undefined))
  const signature = sign(scheme, secret, { timestamp: String(nowSeconds), id: sample.id }, body)
  if (signature === undefined) fail(`this secret can't sign samples of provider "${name}"`)
  return { headers: { 'content-type': 'application/json', ...writer.headers(sample, signature, options) }, body }
}

const writers: Record<string, Writer> = {
  stripe: {
    payload: ({ type, id, nowSeconds, email, livemode }) => ({
      id,
      object: 'event',
      api_version: '2026-08-27.basil',
      created: nowSeconds,
      data: { object: stripeObject({ type, eventId: id, created: nowSeconds, email, livemode }) },
      livemode,
      pending_webhooks: 1,
      request: { id: null, idempotency_key: null },
      type,
    }),
    headers: ({ nowSeconds }, signature) => ({ 'stripe-signature': `t=${nowSeconds},v1=${signature}` }),
  },
  'standard-webhooks': standardWriter('webhook'),
  svix: standardWriter('svix'),
  github: {
    payload: ({ type, id, nowSeconds, email }) => ({
      ...(type.includes('.') && { action: type.slice(type.indexOf('.') + 1) }),
      sponsorship: {
        node_id: `S_${id.slice(0, 8)}`,
        created_at: iso(nowSeconds),
        sponsor: { login: 'ada', email },
        tier: { name: '$12 a month', monthly_price_in_cents: 1200 },
      },
      sender: { login: 'ada', email },
    }),
    headers: ({ type, id }, signature) => ({
      'x-github-event': type.split('.', 1)[0] ?? type,
      'x-github-delivery': id,
      'x-hub-signature-256': `sha256=${signature}`,
    }),
  },
  gocardless: {
    payload: ({ type, id, nowSeconds, email }) => ({
      events: [
        {
          id,
          created_at: iso(nowSeconds),
          resource_type: type.split('.', 1)[0],
          action: type.includes('.') ? type.slice(type.indexOf('.') + 1) : 'created',
          links: { payment: 'PM000SAMPLE' },
          details: { origin: 'gocardless', cause: 'sample', description: 'A sample event.' },
          resource_metadata: { email },
        },
      ],
      meta: { webhook_id: 'WB000SAMPLE' },
    }),
    headers: (_sample, signature) => ({ 'webhook-signature': signature }),
  },
  inboxili: {
    payload: ({ type, id, nowSeconds, email }) => ({
      event: type,
      message_id: id,
      to: email,
      timestamp: nowSeconds,
      ...(type.includes('bounce') && { bounce_type: 'hard', diagnostic: '550 5.1.1 no such mailbox' }),
    }),
    headers: (_sample, signature) => ({ 'x-inboxili-signature': signature }),
  },
  generic: {
    payload: ({ type, id, nowSeconds, email, livemode }, options) => {
      const order = { id: `ORD-${id.slice(-8).toUpperCase()}`, email, total: '42.00', currency: 'EUR' }
      const payload: Json = { created_at: iso(nowSeconds), livemode, order }
      if (typeof options.id === 'string') put(payload, options.id, id)
      if (typeof options.type === 'string') put(payload, options.type, type)
      return payload
    },
    headers: ({ type, id, nowSeconds }, signature, options) => ({
      ...(typeof options.id === 'object' && { [headerOf(options.id)]: id }),
      ...(typeof options.type === 'object' && { [headerOf(options.type)]: type }),
      ...(typeof options.timestampHeader === 'string' && { [options.timestampHeader.toLowerCase()]: String(nowSeconds) }),
      [String(options.header).toLowerCase()]: `${options.prefix ?? ''}${signature}`,
    }),
  },
}

function standardWriter(family: string): Writer {
  return {
    payload: ({ type, nowSeconds, email, livemode }) => ({
      type,
      timestamp: iso(nowSeconds),
      data: { id: 'ord_sample', email, customer_email: email, amount: 4200, currency: 'eur', livemode },
    }),
    headers: ({ id, nowSeconds }, signature) => ({
      [`${family}-id`]: id,
      [`${family}-timestamp`]: String(nowSeconds),
      [`${family}-signature`]: `v1,${signature}`,
    }),
  }
}

function newId(provider: string): string {
  const unique = randomUUID()
  if (provider === 'github' || provider === 'inboxili') return unique
  const prefix = { stripe: 'evt_', gocardless: 'EV', generic: 'evt_' }[provider] ?? 'msg_'
  return prefix + unique.replaceAll('-', '').slice(0, 24)
}

function iso(seconds: number): string {
  return new Date(seconds * 1000).toISOString()
}

function headerOf(place: unknown): string {
  return String((place as { header?: unknown } | null)?.header).toLowerCase()
}

function put(target: Json, path: string, value: string): void {
  const [first = '', ...rest] = path.split('.')
  if (rest.length === 0) target[first] = value
  else {
    const inner = (typeof target[first] === 'object' && target[first] !== null ? target[first] : {}) as Json
    target[first] = inner
    put(inner, rest.join('.'), value)
  }
}

function fail(message: string): never {
  throw new Error(message)
}
