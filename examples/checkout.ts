import { defineConfig, env, key } from 'oncehook'

// Checkout.com's events say nothing of the customer. Put the address into the metadata when you request the payment: its events
// carry it.
export default defineConfig({
  sources: {
    checkout: { provider: 'checkout', secrets: env.list('CHECKOUT_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'checkout',
      type: 'payment_captured',
      // A payment can be captured in parts, each by an action of its own.
      email: ({ data }) => ({
        key: key('payment', data.id, 'captured', data.action_id),
        to: data.metadata.email,
        from_email: 'billing@example.com',
        subject: `We received your payment for ${data.reference}`,
        html_body: '<p>Thank you, we received your payment.</p>',
      }),
    },
    {
      name: 'payment failed',
      source: 'checkout',
      type: 'payment_declined',
      email: ({ data }) => ({
        key: key('payment', data.id, 'declined'),
        to: data.metadata.email,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'checkout',
      type: 'payment_refunded',
      email: ({ data }) => ({
        key: key('payment', data.id, 'refunded', data.action_id),
        to: data.metadata.email,
        from_email: 'billing@example.com',
        subject: 'Your refund is on its way',
        html_body: '<p>We have refunded your payment.</p>',
      }),
    },
  ],
})
