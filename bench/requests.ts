import { createHmac, createSecretKey, randomBytes } from 'node:crypto'

/** The secret that all candidates verify by. */
export const SECRET = 'whsec_of_the_bench_only'

/** The types of the events: every hundredth is of the rare one. */
const TYPE = 'invoice.paid'
const RARE = 'invoice.void'
/** What a rule has to name in order to want all events, one in a hundred, or none. */
export const typeFor = { none: 'charge.refunded', one: RARE, all: TYPE } as const

const ID_DIGITS = 24
const key = createSecretKey(Buffer.from(SECRET))

/** Makes signed requests, head and body in one piece of bytes, each of an event of its own. */
export interface RequestMaker {
  /** The request of a new event. */
  next(): Buffer
  /** The same event delivered again: a new time and signature over the same bytes. */
  again(request: Buffer): Buffer
  /** The same with a signature that is wrong. */
  forged(): Buffer
}

/** Makes requests whose bodies have this many bytes; `rare`: every hundredth is of another type. */
export function requestMaker(bodyBytes: number, options: { rare: boolean; source?: string }): RequestMaker {
  const templates = Array.from({ length: 100 }, (_, index) =>
    templateOf(bodyBytes, options.rare && index === 0 ? RARE : TYPE, options.source ?? 'stripe'),
  )
  let made = 0
  const next = () => {
    const template = templates[made % templates.length] as Template // there are a hundred
    made += 1
    const bytes = Buffer.from(template.bytes)
    // Without any order, which is the worst that an index can get.
    bytes.write(randomBytes(ID_DIGITS / 2).toString('hex'), template.idAt, 'latin1')
    bytes.write(randomBytes(ID_DIGITS / 2).toString('hex'), template.objectIdAt, 'latin1')
    return sign(bytes, template)
  }
  const sign = (bytes: Buffer, { timeAt, macAt, bodyAt }: Layout) => {
    const seconds = String(Math.floor(Date.now() / 1000))
    const mac = createHmac('sha256', key).update(`${seconds}.`).update(bytes.subarray(bodyAt)).digest('hex')
    bytes.write(seconds, timeAt, 'latin1')
    bytes.write(mac, macAt, 'latin1')
    return bytes
  }
  // The head has one layout whatever the type is.
  const layout = templates[0] as Template
  return {
    next,
    again: (request) => sign(Buffer.from(request), layout),
    forged() {
      const bytes = next()
      bytes.write('0000', layout.macAt, 'latin1')
      return bytes
    },
  }
}

/** The ID of the event that a request delivers. */
export function eventIdOf(request: Buffer): string {
  const at = request.indexOf('evt_')
  return request.toString('latin1', at, at + 'evt_'.length + ID_DIGITS)
}

interface Layout {
  timeAt: number
  macAt: number
  bodyAt: number
}

interface Template extends Layout {
  bytes: Buffer
  idAt: number
  objectIdAt: number
}

function templateOf(bodyBytes: number, type: string, source: string): Template {
  const body = bodyOf(bodyBytes, type)
  const head = [
    `POST /webhooks/${source} HTTP/1.1`,
    'Host: bench.example.com',
    'User-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)',
    'Accept: */*; q=0.5, application/xml',
    'Cache-Control: no-cache',
    'Content-Type: application/json; charset=utf-8',
    `Stripe-Signature: t=0000000000,v1=${'0'.repeat(64)}`,
    `Content-Length: ${body.length}`,
    '',
    '',
  ].join('\r\n')
  const bytes = Buffer.concat([Buffer.from(head), body])
  return {
    bytes,
    timeAt: head.indexOf('t=0000000000') + 2,
    macAt: head.indexOf(',v1=') + 4,
    bodyAt: head.length,
    idAt: head.length + body.indexOf('evt_') + 4,
    objectIdAt: head.length + body.indexOf('in_') + 3,
  }
}

/** An invoice event as Stripe writes it, with lines until it has the size. */
function bodyOf(bytes: number, type: string): Buffer {
  const random = (length: number) => randomBytes(length).toString('hex').slice(0, length)
  const line = () => ({
    id: `il_1${random(23)}`,
    object: 'line_item',
    amount: Math.floor(Math.random() * 100_000),
    currency: 'eur',
    description: `1 × Plan ${random(6)} (at €${Math.floor(Math.random() * 100)}.00 / month)`,
    discountable: true,
    livemode: true,
    metadata: { order: random(12) },
    period: { end: 1_700_000_000 + Math.floor(Math.random() * 1e7), start: 1_690_000_000 },
    proration: false,
    quantity: 1,
  })
  const event = (lines: readonly object[], note: string) =>
    JSON.stringify(
      {
        id: `evt_${'0'.repeat(ID_DIGITS)}`,
        object: 'event',
        api_version: '2026-08-27.basil',
        created: Math.floor(Date.now() / 1000),
        data: {
          object: {
            id: `in_${random(ID_DIGITS)}`,
            object: 'invoice',
            account_country: 'DE',
            account_name: 'Example GmbH',
            amount_due: 4200,
            amount_paid: 4200,
            billing_reason: 'subscription_cycle',
            collection_method: 'charge_automatically',
            currency: 'eur',
            customer: `cus_${random(14)}`,
            customer_email: `${random(8)}@example.com`,
            customer_name: `Customer ${random(6)}`,
            hosted_invoice_url: `https://invoice.stripe.com/i/acct_${random(16)}/live_${random(80)}`,
            lines: { object: 'list', data: lines, has_more: false },
            metadata: { note },
            number: `${random(8).toUpperCase()}-0001`,
            status: 'paid',
          },
        },
        livemode: true,
        pending_webhooks: 1,
        request: { id: null, idempotency_key: null },
        type,
      },
      undefined,
      2,
    )
  const lines: object[] = []
  while (Buffer.byteLength(event([...lines, line()], '')) < bytes - 100) lines.push(line())
  const missing = bytes - Buffer.byteLength(event(lines, ''))
  return Buffer.from(event(lines, random(Math.max(0, missing))))
}
