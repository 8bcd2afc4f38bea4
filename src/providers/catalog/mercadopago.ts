import { z } from 'zod'
import { field } from '../json.ts'
import { defineProvider, type ProviderFacts, type WebhookRequest } from '../provider.ts'
import type { Proof, Reason, SignatureKind } from '../signature.ts'

// As the library reads it: blanks around, names in any case, of several times the last.
const V1 = /(?:^|,)\s*[vV]1\s*=\s*([0-9a-f]{64})\s*(?=,|$)/g
const TS = /(?:^|,)\s*[tT][sS]\s*=\s*([0-9]{1,15})\s*(?=,|$)/g

const kind: SignatureKind = { kind: 'hmac', algorithm: 'sha256', encoding: 'hex', secret: { form: 'text' } }

const provider: ProviderFacts = {
  name: 'mercadopago',
  documentation: 'https://www.mercadopago.com.br/developers/en/docs/your-integrations/notifications/webhooks',
  scheme: {
    signatures: [kind],
    place: 'header `x-signature` (`ts=…,v1=…`)',
    signed: '`id:DATA.ID;request-id:X-REQUEST-ID;ts:TS;`, with `data.id` of the query; a part without a value is left out',
    timestamp: '`ts` in the header `x-signature`, in seconds or milliseconds',
    proofs,
  },
  // The library checks no age unless it is told to.
  idIsSigned: false,
  contentIsSigned: false,
  idBasis: 'provider',
  id: (event) => field(event, 'id'),
  type: (event) => field(event, 'action') ?? field(event, 'type'),
  livemode: (event) => field(event, 'live_mode'),
  occurredAt: (event) => field(event, 'date_created'),
  object: (event) => field(field(event, 'data'), 'id'),
}

function proofs({ headers, query = '' }: WebhookRequest): readonly Proof[] | Reason {
  const [header = '', ...more] = headers['x-signature'] ?? []
  const requestIds = headers['x-request-id'] ?? []
  const dataIds = new URLSearchParams(query).getAll('data.id')
  if (header.trim() === '') return 'missing_signature'
  if (more.length > 0 || requestIds.length > 1 || dataIds.length > 1) return 'malformed_signature'

  const given = Array.from(header.matchAll(V1), ([, digest = '']) => digest)
  const timestamp = Array.from(header.matchAll(TS), ([, text]) => text).at(-1)
  // Another version alone is none that we could check.
  if (given.length === 0) return 'missing_signature'
  if (timestamp === undefined) return 'malformed_signature'

  const [dataId, requestId] = [dataIds[0]?.trim().toLowerCase(), requestIds[0]?.trim()]
  const text = `${dataId ? `id:${dataId};` : ''}${requestId ? `request-id:${requestId};` : ''}ts:${timestamp};`
  return [
    {
      signatures: [{ kind, given }],
      signed: () => [[text]],
      signedAt: timestamp.length > 12 ? Number(timestamp) / 1000 : Number(timestamp),
    },
  ]
}

/** Mercado Pago, Webhooks (mercadopago.com developers, notifications; mercadopago 3.6 `WebhookSignatureValidator`). */
export const mercadopago = defineProvider({
  name: 'mercadopago',
  title: 'Mercado Pago',
  options: z.strictObject({}),
  create: () => provider,
  guide: {
    setUp:
      'In Your integrations open the application, Webhooks, Configure notifications: enter `https://YOUR-HOST/webhooks/mercadopago` and choose Payments (and Orders or Subscriptions, where used). Keep the query that Mercado Pago adds: `data.id` in it is signed, so no proxy may drop or rewrite it.',
    secret: 'The secret signature that the same page shows after saving, as text.',
    identity: '`id` of the notification, in the body, as text; `action` (`payment.updated`), else `type` (`payment`).',
    unsigned:
      '**The whole body**, so ID, type and everything else in it. Signed are only `data.id` of the query, `x-request-id` and the time. Whoever has seen one signed request can send any body with it: give `confirm`, and fetch the object. What is made up under a real ID doesn’t hold back the real event.',
    retries:
      '200 or 201 within 22 s is success. How often it comes again differs between Mercado Pago’s pages; that the ID stays the same is not confirmed.',
    traps: [
      'QR-code notifications are not signed at all: they are refused.',
      'Only `v1` counts; a header with other versions alone is refused.',
      'No age is checked unless the source sets `toleranceSeconds`, which then bounds both past and future. `ts` is read as seconds or milliseconds by its length.',
      'The older IPN (`topic` and `id` in the query) has no ID of its own: what is signed of it is kept as quarantined.',
      '`data.id` is signed in lower case, however it is written in the query.',
    ],
  },
  sample: {
    types: { paid: 'payment.updated' },
    newId: (unique) => String(100_000_000_000 + (Number.parseInt(unique.slice(0, 9), 16) % 900_000_000_000)),
    request: ({ type, id, happenedSeconds, nowSeconds, email, livemode }, sign) => {
      const requestId = `sample-${id}`
      const [family = type] = type.split('.')
      const body = JSON.stringify({
        action: type,
        api_version: 'v1',
        data: { id: `9${id}` },
        date_created: new Date(happenedSeconds * 1000).toISOString(),
        id: /^[0-9]{1,15}$/.test(id) ? Number(id) : id,
        live_mode: livemode,
        type: family,
        user_id: 44444,
        payer: { email },
      })
      const digest = sign(`id:9${id.toLowerCase()};request-id:${requestId};ts:${nowSeconds};`)
      return {
        headers: { 'x-request-id': requestId, 'x-signature': `ts=${nowSeconds},v1=${digest}` },
        query: `data.id=9${encodeURIComponent(id)}&type=${encodeURIComponent(family)}`,
        body,
      }
    },
  },
})
