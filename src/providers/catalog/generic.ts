import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type WebhookRequest } from '../provider.ts'
import { headerValue } from '../signature.ts'

const headerName = z
  .string()
  .regex(/^[A-Za-z0-9_-]+$/, 'not a header name')
  .transform((name) => name.toLowerCase())
const CREDENTIALS = ['authorization', 'cookie', 'proxy-authorization']
const place = z.union([z.string().min(1), z.strictObject({ header: headerName })])

const genericOptions = z
  .strictObject({
    header: headerName,
    prefix: z.string().optional(),
    algorithm: z.enum(['sha1', 'sha256', 'sha512']),
    encoding: z.enum(['hex', 'base64']),
    timestampHeader: headerName.optional(),
    signed: z.string().optional(),
    id: place,
    type: place,
  })
  .superRefine(({ header, timestampHeader, signed, id, type }, context) => {
    const holes = (signed ?? '{body}').match(/\{[^}]*\}/g) ?? []
    const count = (hole: string) => holes.filter((each) => each === hole).length
    const fail = (message: string) => context.addIssue({ code: 'custom', path: ['signed'], message })
    if (count('{body}') !== 1) fail('must hold {body} once')
    if (holes.length !== count('{body}') + count('{timestamp}')) fail('may hold {timestamp} and {body} only')
    if (count('{timestamp}') > 0 && !timestampHeader) fail('holds {timestamp}: timestampHeader is missing')
    // A time that isn't signed proves nothing.
    if (timestampHeader && signed !== undefined && count('{timestamp}') === 0)
      fail('must hold {timestamp}, as timestampHeader is set')
    // The header of an ID or a type is stored.
    for (const [path, place] of Object.entries({ id, type }))
      if (typeof place === 'object' && [...CREDENTIALS, header].includes(place.header))
        context.addIssue({
          code: 'custom',
          path: [path],
          message: 'must not be a header that carries a credential or the signature',
        })
  })

type Place = z.infer<typeof place>

const DIGEST_BYTES = { sha1: 20, sha256: 32, sha512: 64 }

/** Any sender that signs its body by HMAC, as the source's options describe. */
export const generic = defineProvider({
  name: 'generic',
  title: 'Generic',
  options: genericOptions,
  create: ({ header, prefix = '', algorithm, encoding, timestampHeader, signed, id, type }) => ({
    name: 'generic',
    documentation: 'https://www.rfc-editor.org/rfc/rfc2104',
    scheme: {
      signatures: [
        {
          kind: 'hmac',
          header,
          match: new RegExp(`^${escaped(prefix)}(${digest(algorithm, encoding)})$`, 'g'),
          algorithm,
          encoding,
          secret: { form: 'text' },
        },
      ],
      ...(timestampHeader && { timestamp: { header: timestampHeader, match: /^(.*)$/g } }),
      signed: signed ?? (timestampHeader ? '{timestamp}.{body}' : '{body}'),
    },
    factHeaders: [id, type].flatMap((place) => (typeof place === 'string' ? [] : [place.header.toLowerCase()])),
    toleranceSeconds: 300,
    idIsSigned: typeof id === 'string',
    contentIsSigned: true,
    idBasis: 'provider',
    id: (event, request) => valueAt(id, event, request),
    type: (event, request) => valueAt(type, event, request),
  }),
  guide: {
    setUp:
      'For any sender that signs its body by HMAC: say where the signature stands and how it is made. The table is that of the line below.',
    options: `
  header: 'x-shop-signature',
  prefix: 'sha256=',
  algorithm: 'sha256',
  encoding: 'hex',
  id: 'id',
  type: 'type',
`,
    secret: 'The shared secret, as text.',
    identity: 'Where `id` and `type` say: a dotted path in the body, or `{ header }`.',
    unsigned:
      'The headers, so also an ID or a type that stands in one; then a captured body under another ID is stopped by the second key on type and body, and under another type it is a new event. Without `timestampHeader` there is no signed time.',
    retries: 'The sender’s choice.',
    traps: [
      'With `timestampHeader` the time is signed and must be within `toleranceSeconds` (300): unix seconds only. `signed` says how, such as `{timestamp}.{body}`.',
      'The header must be the prefix and the digest, nothing else. Schemes that sign the URL, selected fields or a hash of the body, and static tokens, can’t be described this way: write a provider.',
      'The mode (test or live) and the provider’s time of the event are not read.',
    ],
  },
  sample: {
    types: { paid: 'order.paid', refunded: 'order.refunded' },
    newId: (unique) => `evt_${unique}`,
    request: ({ type, id, happenedSeconds, nowSeconds, email, livemode, options }, sign) => {
      const given = genericOptions.parse(options)
      const order = { id: `ORD-${id.slice(-8).toUpperCase()}`, email, total: '42.00', currency: 'EUR' }
      const payload: Record<string, unknown> = { created_at: new Date(happenedSeconds * 1000).toISOString(), livemode, order }
      if (typeof given.id === 'string') put(payload, given.id, id)
      if (typeof given.type === 'string') put(payload, given.type, type)
      const body = JSON.stringify(payload)
      const signed = (given.signed ?? (given.timestampHeader ? '{timestamp}.{body}' : '{body}'))
        .replace('{timestamp}', String(nowSeconds))
        .replace('{body}', () => body)
      return {
        headers: {
          ...(typeof given.id === 'object' && { [given.id.header]: id }),
          ...(typeof given.type === 'object' && { [given.type.header]: type }),
          ...(given.timestampHeader && { [given.timestampHeader]: String(nowSeconds) }),
          [given.header]: `${given.prefix ?? ''}${sign(signed)}`,
        },
        body,
      }
    },
  },
})

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')
}

function digest(algorithm: keyof typeof DIGEST_BYTES, encoding: 'hex' | 'base64'): string {
  const bytes = DIGEST_BYTES[algorithm]
  if (encoding === 'hex') return `[0-9a-f]{${bytes * 2}}`
  return `[A-Za-z0-9+/]{${Math.ceil((bytes * 4) / 3)}}${'='.repeat((3 - (bytes % 3)) % 3)}`
}

function put(target: Record<string, unknown>, path: string, value: string): void {
  const [first = '', ...rest] = path.split('.')
  const inner = target[first]
  target[first] = rest.length === 0 ? value : { ...(typeof inner === 'object' && inner) }
  if (rest.length > 0) put(target[first] as Record<string, unknown>, rest.join('.'), value)
}

function valueAt(where: Place, event: unknown, { headers }: WebhookRequest): unknown {
  if (typeof where !== 'string') return headerValue(headers, where.header)
  return where.split('.').reduce(field, event)
}
