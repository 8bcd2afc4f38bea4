import { z } from 'zod'
import { derivedId } from '../derived-id.ts'
import { field } from '../json.ts'
import { defineProvider } from '../provider.ts'

const TIMES = ['DeliveredAt', 'BouncedAt', 'ReceivedAt', 'ChangedAt']
/** By kind: opens and clicks of one message repeat, and a message can bounce more than once. */
const DISTINCTIONS = new Map<unknown, string>([
  ['Open', 'ReceivedAt'],
  ['Click', 'ReceivedAt'],
  ['Bounce', 'ID'],
])

/** Postmark (postmarkapp.com/developer, webhooks): HTTP Basic or a header of one's own, and nothing signed. */
export const postmark = defineProvider({
  name: 'postmark',
  title: 'Postmark',
  options: z.strictObject({
    header: z
      .string()
      .regex(/^[A-Za-z0-9_-]+$/, 'not a header name')
      .transform((name) => name.toLowerCase())
      .optional(),
  }),
  create: ({ header }) => ({
    name: 'postmark',
    documentation: 'https://postmarkapp.com/developer/webhooks/webhooks-overview',
    scheme: {
      signatures: [
        header === undefined
          ? {
              kind: 'credential',
              header: 'authorization',
              match: /^basic +([A-Za-z0-9+/]+={0,2})$/gi,
              encoding: 'basic',
              secret: { form: 'text' },
            }
          : { kind: 'credential', header, match: /^(.*\S.*)$/g, encoding: 'plain', secret: { form: 'text' } },
      ],
      signed: '',
    },
    toleranceSeconds: 300,
    idIsSigned: false,
    contentIsSigned: false,
    idBasis: 'derived',
    id: (event) => derivedId(field(event, 'MessageID'), field(event, 'RecordType'), ...distinction(event)),
    type: (event) => field(event, 'RecordType'),
    occurredAt: (event) => TIMES.map((name) => field(event, name)).find((time) => time !== undefined),
    object: (event) => field(event, 'MessageID'),
  }),
  guide: {
    setUp:
      'In the server’s message stream under Webhooks add `https://YOUR-HOST/webhooks/postmark`, with basic auth credentials or a custom header, and choose Delivery, Bounce, Spam complaint and, where wanted, Open, Click and Subscription change.',
    variants: [{ title: 'a custom header', options: { header: 'X-Postmark-Secret' } }],
    secret:
      '`USER:PASSWORD` of the basic auth (the user name can hold no colon, the password can; UTF-8), or with `header` the value of that header.',
    identity:
      'Postmark gives no event ID: `MessageID` + `:` + `RecordType`; opens and clicks repeat, so theirs end in `:` + `ReceivedAt`, and bounces in `:` + their own `ID`. `RecordType` is the type. Another body under the same ID (a second recipient) is a further event, whose ID ends in its hash.',
    unsigned: '**Everything.** The password proves that its holder sent the request; what the body says is not protected.',
    retries:
      'Exactly 200 is success. Inbound messages come again 10 times over about 10.5 h; other kinds fewer times (how many is not confirmed).',
    traps: [
      'Leave “include content” off for bounces and complaints: whole messages may be over the 1 MiB that a body may have here (`maxBodyBytes`).',
      'Inbound messages have no `RecordType`: they are kept as quarantined.',
      'It delivers email events, none of payments, and says nothing of test mode.',
    ],
  },
  sample: {
    types: {},
    newId: (_hex, uuid) => uuid,
    request: ({ type, id, happenedSeconds, email, options }, sign) => {
      const at = new Date(happenedSeconds * 1000).toISOString()
      const body = JSON.stringify({
        RecordType: type,
        MessageStream: 'outbound',
        ServerID: 23,
        MessageID: id,
        Tag: 'receipt',
        Metadata: {},
        ...(type === 'Bounce' && { ID: 42, Type: 'HardBounce', TypeCode: 1, Email: email, BouncedAt: at }),
        ...(type !== 'Bounce' && { Recipient: email, [type === 'Delivery' ? 'DeliveredAt' : 'ReceivedAt']: at }),
      })
      const { header } = options
      return { headers: typeof header === 'string' ? { [header]: sign('') } : { authorization: `Basic ${sign('')}` }, body }
    },
  },
})

/** What tells apart the events of one kind on one message, if anything does. */
function distinction(event: unknown): unknown[] {
  const name = DISTINCTIONS.get(field(event, 'RecordType'))
  const value = name === undefined ? undefined : field(event, name)
  return value === undefined || value === null ? [] : [value]
}
