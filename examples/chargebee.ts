import { defineConfig, env, key } from 'oncehook'

const site = env.required('CHARGEBEE_SITE')
const apiKey = env.required('CHARGEBEE_API_KEY')

// Chargebee signs nothing: whoever has the user and the password of the webhook can say anything. So what counts is the event as
// its API has it.
export default defineConfig({
  sources: {
    chargebee: {
      provider: 'chargebee',
      secrets: env.list('CHARGEBEE_WEBHOOK_SECRETS'),
      confirm: async ({ id, event_type }) => {
        const answer = await fetch(`https://${site}.chargebee.com/api/v2/events/${encodeURIComponent(id)}`, {
          headers: { authorization: `Basic ${btoa(`${apiKey}:`)}` },
        })
        // Nobody's event is ignored; whatever else goes wrong is tried again.
        if (answer.status === 404) return
        if (!answer.ok) throw new Error(`Chargebee answered ${answer.status}`)
        const { event } = (await answer.json()) as { event: { event_type: string } }
        // A forged request could give the ID of a genuine event and another type, by which the rules are chosen.
        return event.event_type === event_type ? event : undefined
      },
    },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'chargebee',
      type: 'payment_succeeded',
      email: ({ content }) => ({
        key: key('transaction', content.transaction.id, 'paid'),
        to: content.customer.email,
        from_email: 'billing@example.com',
        subject: 'We received your payment',
        html_body: '<p>Thank you, we received your payment.</p>',
      }),
    },
    {
      name: 'payment failed',
      source: 'chargebee',
      type: 'payment_failed',
      email: ({ content }) => ({
        key: key('transaction', content.transaction.id, 'failed'),
        to: content.customer.email,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'chargebee',
      type: 'payment_refunded',
      email: ({ content }) => ({
        key: key('transaction', content.transaction.id, 'refunded'),
        to: content.customer.email,
        from_email: 'billing@example.com',
        subject: 'Your refund is on its way',
        html_body: '<p>We have refunded your payment.</p>',
      }),
    },
    {
      name: 'subscription ended',
      source: 'chargebee',
      type: 'subscription_cancelled',
      email: ({ content }) => ({
        key: key('subscription', content.subscription.id, 'ended'),
        to: content.customer.email,
        from_email: 'billing@example.com',
        subject: 'Your subscription has ended',
        html_body: '<p>We are sorry to see you go.</p>',
      }),
    },
  ],
})
