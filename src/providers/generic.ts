import { z } from 'zod'
import { field } from './json.ts'
import type { HeaderValues, Provider, ProviderDefinition } from './provider.ts'
import { headerValue } from './signature.ts'

const headerName = z
  .string()
  .regex(/^[A-Za-z0-9_-]+$/, 'not a header name')
  .transform((name) => name.toLowerCase())
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
  .superRefine(({ timestampHeader, signed }, context) => {
    const holes = (signed ?? '{body}').match(/\{[^}]*\}/g) ?? []
    const count = (hole: string) => holes.filter((each) => each === hole).length
    const fail = (message: string) => context.addIssue({ code: 'custom', path: ['signed'], message })
    if (count('{body}') !== 1) fail('must hold {body} once')
    if (holes.length !== count('{body}') + count('{timestamp}')) fail('may hold {timestamp} and {body} only')
    if (count('{timestamp}') > 0 && !timestampHeader) fail('holds {timestamp}: timestampHeader is missing')
    // A time that isn't signed proves nothing.
    if (timestampHeader && signed !== undefined && count('{timestamp}') === 0)
      fail('must hold {timestamp}, as timestampHeader is set')
  })

type Place = z.infer<typeof place>

const DIGEST_BYTES = { sha1: 20, sha256: 32, sha512: 64 }

/** Any sender that signs its body by HMAC, as the source's options describe. */
export const generic: ProviderDefinition<z.infer<typeof genericOptions>> = {
  name: 'generic',
  options: genericOptions,
  create: ({ header, prefix = '', algorithm, encoding, timestampHeader, signed, id, type }): Provider => ({
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
    maxBodyBytes: 1024 * 1024,
    factHeaders: [id, type].flatMap((place) => (typeof place === 'string' ? [] : [place.header.toLowerCase()])),
    toleranceSeconds: 300,
    idIsSigned: typeof id === 'string',
    idBasis: 'provider',
    id: (event, headers) => valueAt(id, event, headers),
    type: (event, headers) => valueAt(type, event, headers),
  }),
}

function escaped(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')
}

function digest(algorithm: keyof typeof DIGEST_BYTES, encoding: 'hex' | 'base64'): string {
  const bytes = DIGEST_BYTES[algorithm]
  if (encoding === 'hex') return `[0-9a-f]{${bytes * 2}}`
  return `[A-Za-z0-9+/]{${Math.ceil((bytes * 4) / 3)}}${'='.repeat((3 - (bytes % 3)) % 3)}`
}

function valueAt(where: Place, event: unknown, headers: HeaderValues): unknown {
  if (typeof where !== 'string') return headerValue(headers, where.header)
  return where.split('.').reduce(field, event)
}
