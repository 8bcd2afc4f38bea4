import { defineConfig, env, key } from 'oncehook'

/** Where its API has the objects of each kind of event. */
const paths: Record<string, string> = {
  payment: '/v3/payments',
  refund: '/v3/refunds',
  recurring: '/recurring/plans',
  payout: '/v2/payouts',
}

const secretKey = env.required('XENDIT_SECRET_KEY')

// Xendit signs nothing: its token comes with every request, and whoever has seen one can say anything. So what counts is the
// object as its API has it. The address is what you put into the metadata. These are the objects of its Payments API v3; those of
// older products stand elsewhere, and would be ignored as unknown.
export default defineConfig({
  sources: {
    xendit: {
      provider: 'xendit',
      secrets: env.list('XENDIT_WEBHOOK_SECRETS'),
      confirm: async (event) => {
        const [kind = ''] = event.event.split('.')
        const id = event.data.payment_id ?? event.data.id
        const path = paths[kind] ?? ''
        const answer = await fetch(`https://api.xendit.co${path}/${encodeURIComponent(id)}`, {
          headers: {
            authorization: `Basic ${btoa(`${secretKey}:`)}`,
            ...(path.startsWith('/v3/') && { 'api-version': '2024-11-11' }),
          },
        })
        // Nobody's object is ignored; whatever else goes wrong is tried again.
        if (answer.status === 404) return
        if (!answer.ok) throw new Error(`Xendit answered ${answer.status}`)
        return { ...event, data: { ...((await answer.json()) as object), id } }
      },
    },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'xendit',
      type: ['payment.succeeded', 'payment.capture'],
      email: ({ data }) =>
        data.status === 'SUCCEEDED' && {
          key: key('payment', data.id, 'succeeded'),
          to: data.metadata.email,
          from_email: 'billing@example.com',
          subject: 'We received your payment',
          html_body: '<p>Thank you, we received your payment.</p>',
        },
    },
    {
      name: 'payment failed',
      source: 'xendit',
      type: ['payment.failed', 'payment.failure'],
      email: ({ data }) =>
        data.status === 'FAILED' && {
          key: key('payment', data.id, 'failed'),
          to: data.metadata.email,
          from_email: 'billing@example.com',
          subject: 'Your payment did not go through',
          html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
        },
    },
    {
      name: 'refund',
      source: 'xendit',
      type: 'refund.succeeded',
      email: ({ data }) =>
        data.status === 'SUCCEEDED' && {
          key: key('refund', data.id, 'succeeded'),
          to: data.metadata.email,
          from_email: 'billing@example.com',
          subject: 'Your refund is on its way',
          html_body: '<p>We have refunded your payment.</p>',
        },
    },
    {
      name: 'subscription ended',
      source: 'xendit',
      type: 'recurring.plan.inactivated',
      email: ({ data }) =>
        data.status === 'INACTIVE' && {
          key: key('plan', data.id, 'ended'),
          to: data.metadata.email,
          from_email: 'billing@example.com',
          subject: 'Your subscription has ended',
          html_body: '<p>We are sorry to see you go.</p>',
        },
    },
    {
      name: 'payout',
      source: 'xendit',
      type: 'payout.succeeded',
      email: ({ data }) =>
        data.status === 'SUCCEEDED' && {
          key: key('payout', data.id, 'succeeded'),
          to: 'accounting@example.com',
          from_email: 'billing@example.com',
          subject: `Xendit has paid out ${data.id}`,
          html_body: '<p>The money is on its way to our account.</p>',
        },
    },
  ],
})
